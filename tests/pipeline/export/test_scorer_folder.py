"""The exported scorer: it scores like the run's own, PEFT reads it, and its card is true and runs."""

import json
import shutil
from contextlib import chdir

import pytest

from raydebm.decision.evidence.posterior import Posterior
from raydebm.decision.policy import Policy
from raydebm.errors import CheckpointError, ConfigError
from raydebm.pipeline.export import _is_current, _thresholds, export_scorer
from raydebm.run.directory import RunDir
from raydebm.scorer.ensemble import EnsembleScorer

TEXTS = [("What is 2 + 2?", "2 + 2 = 4. The answer is 4."), ("What is 2 + 2?", "The answer is 5.")]


@pytest.fixture(scope="module")
def exported(run_folder, tmp_path_factory):
    folder = tmp_path_factory.mktemp("out") / "scorer"
    left_out = export_scorer(str(run_folder), folder, license="apache-2.0")
    assert [line.split(":")[0] for line in left_out] == ["thresholds", "an evaluation"]
    return folder


@pytest.fixture(scope="module")
def card(exported):
    return (exported / "README.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def energies(run_folder):
    return [text.members for text in EnsembleScorer.load(run_folder / "scorer", device="cpu").score(TEXTS)]


def test_the_export_scores_as_the_run_does(exported, energies):
    scorer = EnsembleScorer.load(exported, device="cpu")

    assert [text.members for text in scorer.score(TEXTS)] == energies


def test_the_example_of_the_card_runs_in_the_folder(exported, card):
    example = card.split("```python\n")[1].split("```")[0].replace("<this folder>", ".")
    names = {}
    with chdir(exported):
        exec(compile(example, "card", "exec"), names)

    assert len(names["scorer"].score(TEXTS[:1])[0].members) == 2


def test_the_metadata_are_what_the_hub_expects(card, metadata_of):
    huggingface_hub = pytest.importorskip("huggingface_hub")
    metadata = huggingface_hub.ModelCard(card).data

    assert (metadata.license, metadata.library_name, metadata.datasets) == ("apache-2.0", "peft", ["openai/gsm8k"])
    assert "base_model" not in metadata_of(card)  # the embedded encoder is not on the hub
    assert "raydebm" in metadata.tags


def test_the_card_says_what_the_adapters_saw(card):
    assert "| a1 | 2 | 4 | Wqkv, Wi | 2 | 2 | 1 of 1 |" in card
    assert "2 pairs of 2 problems (train); 1 pairs of 1 problems (validation)" in card


def test_what_the_run_does_not_have_is_said(card):
    assert "This scorer was not evaluated" in card


def test_the_card_lists_the_settings_of_a_policy_and_not_what_was_fitted():
    policy = Policy(tau_accept=0.8, posterior=Posterior(weights={"votes": 1.0}, context_weights={}))
    text = _thresholds(policy)

    assert "| tau_accept | 0.8 |" in text.splitlines()
    assert "votes" not in text


def test_nothing_but_the_documented_files_is_exported(exported):
    files = {str(file.relative_to(exported)) for file in exported.rglob("*") if file.is_file()}
    parts = ("adapter_config.json", "adapter_model.safetensors", "head.safetensors", "training.json")

    assert files == {"README.md", "ensemble.json", *(f"{name}/{part}" for name in ("a0", "a1") for part in parts)}


def test_a_card_without_a_licence_says_so(run_folder, tmp_path, metadata_of):
    export_scorer(str(run_folder), tmp_path / "out")
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")

    assert metadata_of(card)["license"] == "unknown"
    assert "None was stated" in card


def test_a_run_without_a_scorer_says_what_makes_it(run_folder, tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    shutil.copy(run_folder / "recipe.json", folder)

    with pytest.raises(CheckpointError, match="no complete scorer; run `raydebm run`"):
        export_scorer(str(folder), tmp_path / "out")


def test_an_export_does_not_mix_with_other_files(run_folder, tmp_path):
    (tmp_path / "mine.txt").write_text("keep me")

    with pytest.raises(ConfigError, match="not empty"):
        export_scorer(str(run_folder), tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["mine.txt"]


@pytest.mark.parametrize("path", ["file/x", "/proc/x"])
def test_a_folder_that_cannot_be_made_is_named_with_its_option(run_folder, tmp_path, path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(ConfigError, match=r"--out '.*/x' cannot be written"):
        export_scorer(str(run_folder), tmp_path / path)


@pytest.mark.parametrize(
    ("version", "fingerprint", "expected"),
    [(None, None, True), (None, "other", False), ("0.0.1", "other", True)],
    ids=["as-it-is", "other-settings", "made-by-another-version"],
)
def test_what_was_made_with_other_settings_is_not_current(run_folder, tmp_path, version, fingerprint, expected):
    folder = shutil.copytree(run_folder, tmp_path / "run")
    manifest = json.loads((folder / "scorer" / "manifest.json").read_text())
    changes = {"version": version, "fingerprint": fingerprint}
    manifest |= {key: value for key, value in changes.items() if value is not None}
    (folder / "scorer" / "manifest.json").write_text(json.dumps(manifest))

    run = RunDir(str(folder))
    assert _is_current(run, run.recipe(), "scorer") is expected


def test_a_checkpoint_name_that_is_neither_folder_nor_repository_is_an_error(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    with pytest.raises(CheckpointError, match="'runs/scorer' is not a folder here, and the hub gave no repository"):
        EnsembleScorer.load("runs/scorer")
