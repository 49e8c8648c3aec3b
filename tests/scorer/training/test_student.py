"""Teaching one adapter what an ensemble says, on tiny encoders."""

import dataclasses
import math

import pytest
import torch

from raydebm.config import PAPER_ADAPTERS, AdapterConfig
from raydebm.errors import PoolError
from raydebm.scorer.checkpoint import read_ensemble
from raydebm.scorer.ensemble import EnsembleScorer, write_ensemble
from raydebm.scorer.training.student import TaughtText, TaughtTexts, distill

STUDENT = AdapterConfig(name="student", rank=8, alpha=16, targets=("Wqkv", "Wo", "Wi"))


@pytest.fixture(scope="module")
def ensemble(trained, tiny, tmp_path_factory):
    folder = tmp_path_factory.mktemp("ensemble")
    write_ensemble(folder, trained, {"run": "test"})
    return EnsembleScorer.of_parts(*read_ensemble(folder), backbones=[tiny["modernbert"]])


@pytest.fixture(scope="module")
def taught(ensemble, groups):
    """(train, validation): what the ensemble says of the groups' texts."""
    parts = []
    for part in groups:
        texts = [(group.problem_id, group.prompt, text) for group in part for text in group.texts]
        energies = [
            torch.tensor(score.members) for score in ensemble.score([(prompt, text) for _, prompt, text in texts])
        ]
        parts.append(
            [
                TaughtText(
                    problem_id=problem_id, prompt=prompt, text=text, mu=float(members.mean()),
                    sigma=float(members.std(correction=0)),
                )
                for (problem_id, prompt, text), members in zip(texts, energies, strict=True)
            ]
        )  # fmt: skip
    return parts


@pytest.fixture
def student(taught, ensemble, tiny, settings, tmp_path):
    def teach(*, held_out=None, epochs=None, **changes):
        return distill(
            TaughtTexts(train=taught[0], held_out=taught[1] if held_out is None else held_out),
            teacher=ensemble.record,
            adapter=STUDENT,
            backbone=tiny["modernbert"],
            settings=dataclasses.replace(
                settings, **{"learning_rate": 1e-2, "max_epochs": 12, "patience": 12} | changes
            ),
            out_dir=tmp_path / "student",
            report=lambda metrics: None if epochs is None else epochs.append(metrics),
        )

    return teach


def scorer_of(student, tiny, folder):
    write_ensemble(folder, student.folders, {})
    return EnsembleScorer.of_parts(*read_ensemble(folder), backbones=[tiny["modernbert"]])


def texts_of(taught):
    return [(text.prompt, text.text) for text in taught]


def test_a_student_says_nearly_what_the_ensemble_says(student, taught, tiny, tmp_path):
    """Its mean and spread over two members, on texts that it did not learn from."""
    scorer = scorer_of(student(), tiny, tmp_path / "student")

    members = torch.tensor([score.members for score in scorer.score(texts_of(taught[1]))])

    mu = torch.tensor([text.mu for text in taught[1]])
    error = (members.mean(1) - mu).std() / mu.std()
    assert members.shape == (len(mu), 2)
    assert float(error) < 0.35
    assert float(torch.corrcoef(torch.stack([members.mean(1), mu]))[0, 1]) > 0.9


def test_the_loss_is_in_squared_deviations_of_mu(student, taught):
    """Before the first step every energy is the mean of mu: the loss is 1 plus the mean of sigma squared over the
    variance. The first epoch starts there."""
    mu = torch.tensor([text.mu for text in taught[0]])
    sigma = torch.tensor([text.sigma for text in taught[0]])
    expected = 1 + float((sigma**2).mean() / mu.var(correction=0))

    epochs = []
    student(epochs=epochs, learning_rate=1e-12, max_epochs=1)

    assert math.isclose(epochs[0].train_loss, expected, rel_tol=1e-3)


def test_the_members_share_one_adapter(student):
    folders = student(max_epochs=1).folders

    low, high = ((folders[name] / "adapter_model.safetensors").read_bytes() for name in ("low", "high"))

    assert low == high


def test_the_best_epoch_on_held_out_texts_is_kept(student):
    training = student(max_epochs=4)
    losses = [metrics.validation_loss for metrics in training.epochs]
    assert losses[training.best_epoch - 1] == min(losses)


def test_without_held_out_texts_the_last_epoch_is_kept(student):
    training = student(held_out=[], max_epochs=3, patience=1)
    assert (len(training.epochs), training.best_epoch) == (3, 3)


def test_the_same_call_gives_the_same_student(student, tmp_path):
    first = (student(max_epochs=1).folders["high"] / "head.safetensors").read_bytes()
    assert (student(max_epochs=1).folders["high"] / "head.safetensors").read_bytes() == first


def test_nothing_to_learn_from(ensemble, tiny, settings, tmp_path):
    with pytest.raises(PoolError, match="no text has energies"):
        distill(
            TaughtTexts(train=[], held_out=[]), teacher=ensemble.record, adapter=STUDENT, backbone=tiny["modernbert"],
            settings=settings, out_dir=tmp_path,
        )  # fmt: skip


def test_members_of_equal_adapters_run_the_encoder_once(student, tiny, taught, tmp_path):
    scorer = scorer_of(student(max_epochs=1), tiny, tmp_path / "student")
    calls = []
    (encoder,) = {encoder for encoder, *_ in scorer._readers[0].engine._members}
    handle = encoder.register_forward_hook(lambda *arguments: calls.append(1))
    scorer.score(texts_of(taught[1])[:3])
    handle.remove()
    assert len(calls) == 1


def test_members_of_different_adapters_keep_an_encoder_each(ensemble):
    assert len({encoder for encoder, *_ in ensemble._readers[0].engine._members}) == len(PAPER_ADAPTERS)


def test_a_distillation_in_float16_scales_its_loss(student, monkeypatch):
    """Small gradients would be 0 in float16."""
    scaled = []

    class Listening(torch.amp.GradScaler):
        def step(self, optimizer):
            scaled.append(self.is_enabled())
            return super().step(optimizer)

    monkeypatch.setattr(torch.amp, "GradScaler", Listening)
    monkeypatch.setattr("raydebm.scorer.training.student.autocast_dtype", lambda *_: torch.float16)

    student(max_epochs=1)

    assert scaled
    assert all(scaled)
