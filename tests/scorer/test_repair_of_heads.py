"""Heads trained anew on balanced groups; the planted shortcut at the end is found, repaired, and costs nothing."""

import json
import math
import random
import shutil
from collections import defaultdict

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from raydebm.config import PAPER_ADAPTERS, PairsConfig
from raydebm.errors import CheckpointError, ConfigError, PoolError
from raydebm.evaluation.confounding.refit import (
    FeatureExtractor,
    RepairSettings,
    RepairText,
    _Objective,
    balanced_cells,
    cell_weights,
    repair_heads,
)
from raydebm.evaluation.confounding.repair_report import RepairData, repair, repair_texts
from raydebm.evaluation.confounding.report import ConfoundingSettings
from raydebm.pipeline.pools import assembled
from raydebm.records import Candidate, ConstraintReport, Label, Problem, Sampling, ScoredCandidate, Verdict
from raydebm.scorer.ensemble import EnsembleScorer, head_of, write_ensemble
from raydebm.scorer.pairs import build_pairs, training_groups
from raydebm.scorer.training.settings import TrainingSettings


def text_of(problem, generator, correct, *, text=None):
    return RepairText(
        candidate_id="", problem_id=problem, prompt="w1 w2", text=text or f"{problem} {generator} {correct}",
        generator=generator, correct=correct,
    )  # fmt: skip


def cell(generator, correct, count):
    return [text_of(f"p{index}", generator, correct, text=f"w{index} {correct}") for index in range(count)]


def sizes(texts):
    counts = defaultdict(int)
    for one in texts:
        counts[one.generator, one.correct] += 1
    return dict(counts)


def test_cells_are_capped_and_generators_that_tell_the_label_are_left_out():
    texts = [*cell("a", True, 9), *cell("a", False, 5), *cell("b", True, 6), *cell("b", False, 20)]
    texts += [*cell("sure", True, 30), *cell("sure", False, 1)]

    balanced, left_out = balanced_cells(texts, cap=6, min_cell=4, seed=0)

    assert sizes(balanced) == {("a", True): 6, ("a", False): 5, ("b", True): 6, ("b", False): 6}
    assert left_out == {"sure": (30, 1)}


def test_a_cell_has_at_most_the_papers_396_texts():
    assert RepairSettings().cap == 396


def test_every_cell_weighs_the_same():
    texts = [*cell("a", True, 6), *cell("a", False, 2), *cell("b", True, 3), *cell("b", False, 1)]
    weights = defaultdict(float)
    for one, weight in zip(texts, cell_weights(texts), strict=True):
        weights[one.generator, one.correct] += weight

    assert dict(weights) == pytest.approx(dict.fromkeys(weights, 0.25))


def test_the_loss_of_the_repair_is_of_the_label_by_the_energy_mean_over_the_cells():
    """Energies -1 and 2 of a's right and wrong answer, 0 of b's: softplus(-1), softplus(-2) and twice ln 2."""
    texts = [text_of("p", generator, correct) for generator in "ab" for correct in (True, False)]
    objective = _Objective.of(texts, torch.tensor([[-1.0], [2.0], [0.0], [0.0]]))

    loss = float(objective.loss(lambda states: states[:, 0], torch.arange(4)))

    assert loss == pytest.approx((math.log1p(math.exp(-1)) + math.log1p(math.exp(-2)) + 2 * math.log(2)) / 4)


@pytest.fixture(scope="module")
def checkpoint(trained, tmp_path_factory):
    folder = tmp_path_factory.mktemp("ensemble") / "scorer"
    write_ensemble(folder, trained, {"run": "test"})
    return folder


def labelled(first, count):
    """Two generators that write the same; half of their answers are right."""
    texts = []
    for index in range(first, first + count):
        for generator in ("a", "b"):
            for correct in (True, False):
                text = f"w{index % 60} w{(index * 3) % 60} {'right' if correct else 'wrong'}"
                texts.append(
                    RepairText(
                        candidate_id="",
                        problem_id=f"p{index}",
                        prompt=f"w{index % 50} w2",
                        text=text,
                        generator=generator,
                        correct=correct,
                    )
                )
    return texts


SETTINGS = RepairSettings(max_epochs=20, learning_rate=3e-3, seed=2)


@pytest.fixture(scope="module")
def extractor(checkpoint):
    return FeatureExtractor(checkpoint, device="cpu")


@pytest.fixture(scope="module")
def repaired(extractor, tmp_path_factory):
    out = tmp_path_factory.mktemp("repaired") / "scorer"
    return repair_heads(extractor, out, train=labelled(0, 20), validation=labelled(100, 8), settings=SETTINGS)


TEXTS = [("w1 w2", "w3 right"), ("w1 w2", "w4 w5 w6 wrong"), ("w9", "w8")]


def test_features_through_the_heads_are_the_ensembles_energies(extractor, checkpoint):
    with torch.no_grad():
        columns = [
            head_of(adapter, hidden_size=32)(states).tolist()
            for adapter, states in zip(extractor.adapters, extractor.features(TEXTS).unbind(1), strict=True)
        ]

    expected = [list(scored.members) for scored in EnsembleScorer.load(checkpoint, device="cpu").score(TEXTS)]
    assert pytest.approx(np.array(expected), abs=1e-5) == np.array(columns).T


def test_a_repaired_checkpoint_is_scored_on_the_features_that_are_kept(checkpoint, repaired):
    """The two heads of five adapters on two texts: ten passes in all; the third text adds five."""
    texts = [("w1 w2", "w3 right"), ("w1 w2", "w4 w5 w6 wrong"), ("w1 w2", "w3 right")]
    extractor = FeatureExtractor(checkpoint, device="cpu")
    read = texts_read(extractor)

    for folder in (checkpoint, repaired.folder):
        expected = EnsembleScorer.load(folder, device="cpu").score(texts)
        scored = extractor.scorer(folder).score(texts)
        assert [text.members for text in scored] == [pytest.approx(text.members, abs=1e-5) for text in expected]
    assert sum(read) == 2 * 5
    extractor.scorer(checkpoint).score([("w9", "w8"), *texts])
    assert sum(read) == 3 * 5


def texts_read(extractor):
    """A list that gets the number of texts of every pass through one member's encoder."""
    read = []
    for encoder, *_ in extractor._engine._members:
        encoder.register_forward_pre_hook(
            lambda module, args, options: read.append(len(options["input_ids"])), with_kwargs=True
        )
    return read


def test_kept_features_score_no_checkpoint_of_other_adapters(extractor, repaired, tmp_path):
    other = shutil.copytree(repaired.folder, tmp_path / "other")
    weights = load_file(other / "a3" / "adapter_model.safetensors")
    save_file({key: tensor + 1 for key, tensor in weights.items()}, other / "a3" / "adapter_model.safetensors")

    with pytest.raises(CheckpointError, match="adapters differ from those"):
        extractor.scorer(other)


def test_only_the_heads_are_new(checkpoint, repaired):
    for name in ("a0", "a1", "a2", "a3", "a4"):
        for file in ("adapter_model.safetensors", "adapter_config.json"):
            assert (repaired.folder / name / file).read_bytes() == (checkpoint / name / file).read_bytes()
        old, new = checkpoint / name / "head.safetensors", repaired.folder / name / "head.safetensors"
        assert old.read_bytes() != new.read_bytes()


def test_the_repaired_checkpoint_loads_and_says_what_was_done(repaired):
    scorer = EnsembleScorer.load(repaired.folder, device="cpu")
    good, bad = scorer.score([("w7 w2", "w50 right"), ("w7 w2", "w50 wrong")])

    assert sum(good.members) < sum(bad.members)
    facts = json.loads((repaired.folder / "ensemble.json").read_text())["meta"]
    assert facts["run"] == "test"
    assert facts["repair"]["cells"] == {"a": [20, 20], "b": [20, 20]}
    card = (repaired.folder / "README.md").read_text()
    losses = ", ".join(f"{head.adapter} {head.train_loss:.4f} / {head.validation_loss:.4f}" for head in repaired.heads)
    assert "## Repair" in card
    assert "Groups: a (20 correct, 20 incorrect), b (20 correct, 20 incorrect). Left out: none." in card
    assert f"Balanced loss (train / validation, nats): {losses}." in card
    assert len(repaired.heads) == 5


def test_the_backbone_counts_once_per_adapter_in_the_share_that_was_trained(extractor, repaired):
    def size(name, file):
        return sum(tensor.numel() for tensor in load_file(repaired.folder / name / file).values())

    heads, adapters = (
        sum(size(name, file) for name in ("a0", "a1", "a2", "a3", "a4"))
        for file in ("head.safetensors", "adapter_model.safetensors")
    )
    encoder = sum(parameter.numel() for parameter in extractor.backbone.encoder.parameters())

    assert repaired.trainable_share == pytest.approx(heads / (heads + adapters + 5 * encoder))


def test_the_same_call_gives_the_same_heads(checkpoint, repaired, tmp_path):
    torch.manual_seed(4321)
    again = repair_heads(
        FeatureExtractor(checkpoint, device="cpu"), tmp_path / "again", train=labelled(0, 20)[::-1],
        validation=labelled(100, 8), settings=SETTINGS,
    )  # fmt: skip

    for name in ("a0", "a4"):
        first, second = repaired.folder / name, again.folder / name
        assert (first / "head.safetensors").read_bytes() == (second / "head.safetensors").read_bytes()


def test_without_validation_all_epochs_run(extractor, tmp_path):
    settings = RepairSettings(max_epochs=3)
    result = repair_heads(extractor, tmp_path / "blind", train=labelled(0, 8), settings=settings)

    assert {(head.num_epochs, head.best_epoch, head.validation_loss) for head in result.heads} == {(3, 3, None)}


def test_what_cannot_be_repaired_is_refused(extractor, checkpoint, tmp_path):
    def run(train, out=tmp_path / "out", validation=(), **options):
        settings = RepairSettings(**options)
        repair_heads(extractor, out, train=train, validation=validation, settings=settings)

    with pytest.raises(ConfigError, match="writes a new checkpoint"):
        run(labelled(0, 8), out=checkpoint)
    with pytest.raises(PoolError, match=r"at least two generators.*b \(8 correct, 0 incorrect\)"):
        run([one for one in labelled(0, 8) if one.generator == "a" or one.correct])
    with pytest.raises(
        PoolError, match="1 problems are in both the training and the validation part of the repair, such as 'p7'"
    ):
        run(labelled(0, 8), validation=labelled(7, 2))


def test_texts_for_the_repair_are_the_labelled_ones_of_the_given_problems():
    def candidate(name, *, text="x", problem="p", greedy=False):
        return Candidate(
            candidate_id=name, task="toy", problem_id=problem, generator="g", text=text,
            error=None if text else "HTTP 500", sampling=Sampling(temperature=0.0) if greedy else Sampling(),
        )  # fmt: skip

    candidates = [
        candidate("right"), candidate("wrong", text="y"), candidate("unlabeled"), candidate("failed", text=None),
        candidate("greedy", greedy=True), candidate("elsewhere", problem="q"), candidate("no label"),
    ]  # fmt: skip
    verdicts = {"right": Verdict.CORRECT, "wrong": Verdict.INCORRECT, "unlabeled": Verdict.UNLABELED}
    verdicts |= dict.fromkeys(("failed", "greedy", "elsewhere"), Verdict.CORRECT)
    labels = {name: Label(candidate_id=name, problem_id="p", verdict=verdict) for name, verdict in verdicts.items()}
    problems = {"p": Problem(task="toy", problem_id="p", prompt="?")}

    texts = repair_texts(pools_of_planted((problems, candidates, labels)))

    assert {(one.text, one.generator, one.correct) for one in texts} == {("x", "g", True), ("y", "g", False)}


def test_plans_are_repaired_by_the_share_that_training_prefers():
    """None is without violation; of eight the best two are the correct ones."""
    scores = [0.4, 0.1, 0.2, 0.3, 0.5, 0.6, 0.7, 0.8]
    candidates = [
        Candidate(candidate_id=f"c{score}", task="toy", problem_id="p", generator="g", text=f"plan {score}")
        for score in scores
    ]
    labels = {
        f"c{score}": Label(candidate_id=f"c{score}", problem_id="p", verdict=Verdict.INCORRECT, violation_score=score)
        for score in scores
    }
    problems = {"p": Problem(task="toy", problem_id="p", prompt="?")}

    texts = repair_texts(pools_of_planted((problems, candidates, labels)))

    assert {one.text for one in texts if one.correct} == {"plan 0.1", "plan 0.2"}
    assert len(texts) == 8


WRITERS = {"strong": ("w80 w81", 0.9), "middle": ("w82 w83", 0.5), "weak": ("w84 w85", 0.1)}
"""Words that only this generator uses, and its share of correct answers: the planted shortcut."""


def planted(first, count, *, turned=False):
    """(problems, candidates, labels). Half of the answers carry a word that tells whether they are right.

    ``turned``: the strong generator has become the weak one, so that the shortcut misleads.
    """
    rng = random.Random(first)
    problems, candidates, labels = {}, [], {}
    for index in range(first, first + count):
        problem_id = f"p{index}"
        prompt = " ".join(f"w{rng.randrange(60)}" for _ in range(5))
        problems[problem_id] = Problem(task="toy", problem_id=problem_id, prompt=prompt)
        for generator, (words, accuracy) in WRITERS.items():
            for sample in range(3):
                correct = rng.random() < (1 - accuracy if turned else accuracy)
                body = [f"w{rng.randrange(60)}" for _ in range(6)]
                body.insert(rng.randrange(7), ("right" if correct else "wrong") if rng.random() < 0.5 else "w60")
                name = f"{problem_id}-{generator}-{sample}"
                text = f"{words} {' '.join(body)} {words}"
                candidates.append(
                    Candidate(candidate_id=name, task="toy", problem_id=problem_id, generator=generator, text=text)
                )
                verdict = Verdict.CORRECT if correct else Verdict.INCORRECT
                labels[name] = Label(candidate_id=name, problem_id=problem_id, verdict=verdict)
    return problems, candidates, labels


def pools_of_planted(data):
    problems, candidates, labels = data
    scored = [
        ScoredCandidate(
            candidate=one,
            report=ConstraintReport(candidate_id=one.candidate_id, answer="x", vote_key="x", penalty=0.0),
            energies=None,
        )
        for one in candidates
    ]
    return assembled(problems.values(), scored, labels=labels)


def groups_of_planted(data):
    problems, candidates, labels = data
    pairs = build_pairs(candidates, labels.values(), config=PairsConfig(), seed=0)
    return training_groups(pairs, candidates, problems.values())


@pytest.fixture(scope="module")
def shortcut_checkpoint(tiny, train_all, tmp_path_factory):
    """Two adapters, trained by the normal code on pools in which the generator all but tells the label."""
    folder = tmp_path_factory.mktemp("planted")
    settings = TrainingSettings(max_length=48, batch_size=16, patience=3, learning_rate=1e-3, max_epochs=2, seed=1)
    groups = groups_of_planted(planted(0, 60)), groups_of_planted(planted(1000, 30))
    two = PAPER_ADAPTERS[:2]
    adapters = train_all(two, backbone=tiny["modernbert"], groups=groups, settings=settings, folder=folder)
    write_ensemble(folder / "scorer", adapters, {})
    return folder / "scorer"


@pytest.fixture(scope="module")
def repair_planted(shortcut_checkpoint, tmp_path_factory):
    """Before and after on test pools; the heads learn from problems that no adapter has seen."""
    extractor = FeatureExtractor(shortcut_checkpoint, device="cpu")

    def run(test, **changes):
        return repair(
            extractor,
            tmp_path_factory.mktemp("planted-repair") / "scorer",
            RepairData(
                train=repair_texts(pools_of_planted(planted(3000, 160))),
                validation=repair_texts(pools_of_planted(planted(1000, 30))),
                test=pools_of_planted(test),
                validation_pools=pools_of_planted(planted(1000, 30)),
            ),
            repair_settings=RepairSettings(**{"learning_rate": 3e-3, "seed": 1} | changes),
            settings=ConfoundingSettings(lambda_=1.0, task="planted"),
        )

    return run


@pytest.fixture(scope="module")
def balanced(repair_planted):
    return repair_planted(planted(2000, 60))


def test_a_planted_shortcut_is_found_and_repaired_at_a_small_cost(balanced):
    before, after = balanced.before, balanced.after

    assert any("the generator explains" in warning for warning in before.warnings())
    assert after.identity_share.value < 0.5 * before.identity_share.value
    assert after.relative_spread.value < 0.3 * before.relative_spread.value
    assert after.within_auroc.value >= before.within_auroc.value
    # Where the strong generator stays strong, not favouring it costs something: docs/confounding.md has how much.
    assert after.accuracy["energy (paper)"].value >= before.accuracy["energy (paper)"].value - 0.15


def test_where_the_shortcut_misleads_the_repair_wins_back_what_it_cost(repair_planted):
    report = repair_planted(planted(5000, 60, turned=True))

    gained = report.after.accuracy["energy (paper)"].value - report.before.accuracy["energy (paper)"].value
    assert gained > 0.5


def test_the_report_of_a_repair_shows_both_scorers(balanced):
    document = balanced.document({"command": "raydebm repair"})
    text, page = document.markdown(), document.html()

    for shown in ("| figure | before | after |", "Generators before the repair", "Generators after the repair"):
        assert shown in text
    assert "| strong |" in text
    assert "raydebm repair" in page
    assert json.loads(json.dumps(balanced.to_json()))["repair"]["cells"]["strong"][0] > 0


def test_test_problems_may_not_be_among_those_of_the_repair(repair_planted):
    with pytest.raises(PoolError, match="test problems are among those of the repair"):
        repair_planted(planted(3010, 5))
