import json

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from raydebm.baselines import build_scorer
from raydebm.baselines.causal_reader import Reader, StatePooling
from raydebm.baselines.evidence import EvidenceScorers
from raydebm.baselines.probe import RECORD_FILE, Probe, train_probe
from raydebm.config import ProbeBaseline, ReaderBaseline
from raydebm.errors import CheckpointError, ConfigError, PoolError
from raydebm.pairs import TrainingGroup
from raydebm.run.directory import RunDir


def config_of(model, **more):
    return ProbeBaseline(name="probe", model=model, device="cpu", last_tokens=2, num_folds=3, **more)


def groups_of(count, *, start=0):
    """Answers that end in `right` beat those that end in `wrong`, after the same words."""
    return [
        TrainingGroup(
            problem_id=f"p{number}",
            prompt=f"w{number} w1",
            texts=(f"w{number} w7 right", f"w{number} w7 wrong"),
            pairs=((0, 1),),
        )
        for number in range(start, start + count)
    ]


@pytest.fixture(scope="module")
def trained(causal_reader, tmp_path_factory):
    """(folder of the checkpoint, its probe) of thirty problems."""
    folder = tmp_path_factory.mktemp("probe") / "model"
    return folder, train_probe(config_of(causal_reader), train=groups_of(30), folder=folder)


def values(probe, *pools):
    return [[score.value for score in row] for row in probe.score(pools)]


def test_features_are_the_pooled_states_of_the_answers_tokens(causal_reader):
    pooling = StatePooling(layers=(1, -1), last_tokens=2)
    [reading] = Reader(ReaderBaseline(name="r", model=causal_reader, device="cpu"), states=pooling).read(
        [("w1 w2", "w4 w5 right")]
    )
    tokenizer, model = AutoTokenizer.from_pretrained(causal_reader), AutoModelForCausalLM.from_pretrained(causal_reader)
    ids = tokenizer("w1 w2 w4 w5 right", add_special_tokens=False)["input_ids"]  # a newline is no token here
    with torch.no_grad():
        states = [model(torch.tensor([ids]), output_hidden_states=True).hidden_states[layer][0] for layer in (1, 2)]
    expected = np.concatenate([part.numpy().mean(0) for layer in states for part in (layer[2:5], layer[3:5])])

    assert np.allclose(reading.features, expected, atol=1e-5)


def test_unseen_right_answers_score_above_wrong_ones(trained, pool):
    _, probe = trained
    pools = [pool(f"u{n}", f"w{n} w7 right", f"w{n} w7 wrong", prompt=f"w{n} w1") for n in range(40, 60)]

    won = [right > wrong for right, wrong in values(probe, *pools)]
    assert sum(won) >= 18


def test_a_readers_signals_stand_beside_the_score(trained, pool, causal_reader):
    _, probe = trained
    given = pool("u", "w4 w7 right")
    [[score]] = probe.score([given])
    [[plain]] = Reader(ReaderBaseline(name="r", model=causal_reader, device="cpu")).score([given])

    assert score.parts == pytest.approx({"entropy": plain.value, **plain.parts})


def test_a_training_problem_is_scored_by_the_head_that_left_it_out(trained, pool):
    _, probe = trained
    text = "w3 w7 right"
    [[seen]] = values(probe, pool("p3", text, prompt="w3 w1"))
    heads, fold = probe._heads, next(iter({probe.record.folds[key] for key in probe.record.folds}))
    features = np.array([probe._known["w3 w1", text].features], dtype=float)
    by_head = [heads.scores(features, [number])[0] for number in range(3)]

    assert fold in range(3)
    assert seen in by_head
    assert seen != pytest.approx(heads.scores(features, [None])[0])


def test_what_is_loaded_scores_as_what_was_trained(trained, pool, causal_reader):
    folder, probe = trained
    pools = [pool("u", "w4 w7 right", "w5 wrong"), pool("p3", "w3 w7 right", prompt="w3 w1")]

    assert np.allclose(np.concatenate(values(Probe.load(folder, config_of(causal_reader)), *pools)),
                       np.concatenate(values(probe, *pools)), atol=1e-5)  # fmt: skip


def test_the_second_build_reads_the_heads_of_the_first(causal_reader, trained, monkeypatch):
    folder, _ = trained
    monkeypatch.setattr("raydebm.baselines.probe.fit_heads", None)
    probe = build_scorer(config_of(causal_reader), train=groups_of(30), folder=folder)

    assert probe.record.num_pairs == 30


def test_other_pairs_train_anew(causal_reader, trained, tmp_path):
    folder = tmp_path / "model"
    for count in (6, 8):
        probe = build_scorer(config_of(causal_reader), train=groups_of(count), folder=folder)

    assert probe.record.num_pairs == 8


def test_texts_read_for_training_are_not_read_again(trained, pool, monkeypatch):
    _, probe = trained
    read = []
    monkeypatch.setattr(probe._reader, "read", lambda texts: read.extend(texts) or [])
    probe.score([pool("p3", "w3 w7 right", "w3 w7 wrong", prompt="w3 w1")])

    assert read == []


def test_a_text_without_tokens_has_no_score_and_others_have(trained, pool):
    _, probe = trained
    [[empty, full]] = probe.score([pool("u", "", "w4 right")])

    assert empty.value is None
    assert "nothing to read" in empty.error
    assert full.value is not None


def test_a_training_text_without_tokens_costs_its_pairs_only(causal_reader, tmp_path):
    odd = TrainingGroup(problem_id="odd", prompt="w30", texts=("", "w2 right", "w2 wrong"), pairs=((1, 0), (1, 2)))
    probe = train_probe(config_of(causal_reader), train=[*groups_of(6), odd], folder=tmp_path / "model")

    assert probe.record.num_pairs == 7


def test_evidence_is_loaded_from_the_run(causal_reader, tmp_path):
    run, config = RunDir(str(tmp_path)), config_of(causal_reader)
    probe = train_probe(config, train=groups_of(6), folder=tmp_path / "scores" / "probe.model")
    [named] = EvidenceScorers.load([config], run).scores([("w1 w2", "w4 right")])

    assert set(named) == {"probe", "probe.entropy", "probe.logprob", "probe.worst"}
    assert probe.name in named


def test_other_settings_than_the_heads_were_trained_with_are_refused(trained, causal_reader):
    folder, _ = trained
    with pytest.raises(CheckpointError, match=r"were trained with other settings .*layer -1.*remove the folder"):
        Probe.load(folder, config_of(causal_reader, layer=1))


def test_a_torn_checkpoint_is_refused(trained, causal_reader, tmp_path):
    folder, _ = trained
    record = json.loads((folder / RECORD_FILE).read_text())
    (tmp_path / RECORD_FILE).write_text(json.dumps(record))

    with pytest.raises(CheckpointError, match=r"probe\.safetensors"):
        Probe.load(tmp_path, config_of(causal_reader))


def test_a_layer_that_the_model_lacks(causal_reader):
    with pytest.raises(CheckpointError, match=r"has 2 layers, and layer is 5; give a number from -3 to 2"):
        train_probe(config_of(causal_reader, layer=5), train=groups_of(6), folder=None)


def test_no_pairs(causal_reader, tmp_path):
    with pytest.raises(PoolError, match="no pairs to train on"):
        train_probe(config_of(causal_reader), train=[], folder=tmp_path)


def test_without_a_folder():
    with pytest.raises(ConfigError, match="kind probe keeps a checkpoint in the run directory"):
        build_scorer(config_of("absent"))
