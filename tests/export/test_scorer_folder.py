"""The exported scorer: it scores like the run's own, PEFT reads it, and its card is true and runs."""

import io
import json
import shutil
from contextlib import chdir, redirect_stdout

import pytest

from raydebm.decision.evidence.posterior import Posterior
from raydebm.decision.policy import Policy
from raydebm.errors import CheckpointError, ConfigError
from raydebm.export.finished_run import FinishedRun
from raydebm.export.model_card import Listing, _thresholds
from raydebm.export.scorer_folder import export_scorer
from raydebm.scorer.ensemble import EnsembleScorer

TEXTS = [("What is 2 + 2?", "2 + 2 = 4. The answer is 4."), ("What is 2 + 2?", "The answer is 5.")]


@pytest.fixture(scope="module")
def exported(finished_run, tmp_path_factory):
    return export_scorer(finished_run, tmp_path_factory.mktemp("out") / "scorer", Listing(license="apache-2.0"))


@pytest.fixture(scope="module")
def card(exported):
    return (exported.folder / "README.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def energies(run_folder):
    return [text.members for text in EnsembleScorer.load(run_folder / "scorer", device="cpu").score(TEXTS)]


def test_the_export_scores_as_the_run_does(exported, energies):
    scorer = EnsembleScorer.load(exported.folder, device="cpu")

    assert [text.members for text in scorer.score(TEXTS)] == energies


@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")
def test_the_examples_of_the_card_run_and_agree(exported, card, blocks_of, energies):
    ensemble, member = blocks_of(card)
    told = io.StringIO()
    with chdir(exported.folder), redirect_stdout(told):
        exec(compile(ensemble, "card", "exec"), {})
        names = {}
        exec(compile(member, "card", "exec"), names)
    first, second, last = told.getvalue().splitlines()

    assert first == f"{sum(energies[0]) / 2:.3f} +- {abs(energies[0][0] - energies[0][1]) / 2:.3f}  {TEXTS[0][1]}"
    assert second.endswith(TEXTS[1][1])
    assert float(last) == pytest.approx(energies[0][0], abs=1e-4)
    assert names["energy"](*TEXTS[1]) == pytest.approx(energies[1][0], abs=1e-4)


def test_the_metadata_are_what_the_hub_expects(card, metadata_of):
    huggingface_hub = pytest.importorskip("huggingface_hub")
    metadata = huggingface_hub.ModelCard(card).data

    assert (metadata.license, metadata.library_name, metadata.datasets) == ("apache-2.0", "peft", ["openai/gsm8k"])
    assert "base_model" not in metadata_of(card)  # the embedded encoder is not on the hub
    assert "raydebm" in metadata.tags


def test_the_card_says_what_the_adapters_saw(card):
    assert "| a1 | 2 | 4 | Wqkv, Wi | 2 | 2 | 1 of 1 |" in card
    assert "2 pairs of 2 problems (train); 1 pairs of 1 problems (validation)" in card


def test_what_the_run_does_not_have_is_said(exported, card):
    assert "This scorer was not evaluated" in card
    assert [line.split(":")[0] for line in exported.left_out] == ["thresholds", "an evaluation"]


def test_the_card_lists_the_settings_of_a_policy_and_not_what_was_fitted():
    policy = Policy(tau_accept=0.8, posterior=Posterior(weights={"votes": 1.0}, context_weights={}))
    text = _thresholds(policy)

    assert "| tau_accept | 0.8 |" in text.splitlines()
    assert "votes" not in text


def test_nothing_but_the_documented_files_is_exported(exported):
    files = {str(file.relative_to(exported.folder)) for file in exported.folder.rglob("*") if file.is_file()}
    parts = ("adapter_config.json", "adapter_model.safetensors", "head.safetensors", "training.json")

    assert files == {"README.md", "ensemble.json", *(f"{name}/{part}" for name in ("a0", "a1") for part in parts)}


def test_a_backbone_can_be_given_its_name_on_the_hub(finished_run, tmp_path, metadata_of):
    folder = export_scorer(finished_run, tmp_path / "out", Listing(base_model="someone/encoder-mini")).folder

    card = (folder / "README.md").read_text(encoding="utf-8")
    assert metadata_of(card)["base_model"] == "someone/encoder-mini"
    assert 'backbone = "someone/encoder-mini"' in card
    for file, key in (
        ("ensemble.json", "backbone"),
        ("a0/training.json", "backbone"),
        ("a1/adapter_config.json", "base_model_name_or_path"),
    ):
        assert json.loads((folder / file).read_text())[key] == "someone/encoder-mini"


def test_a_wrong_name_of_the_backbone_is_found_out_when_it_is_loaded(finished_run, tmp_path):
    from raydebm.embedded import embedded_path
    from raydebm.scorer.model.backbone import load_backbone

    copied = shutil.copytree(embedded_path("encoder-mini"), tmp_path / "other")
    encoder = load_backbone(str(copied), device="cpu").encoder
    encoder.requires_grad_(True)
    next(encoder.parameters()).data.add_(1.0)
    encoder.save_pretrained(copied)
    folder = export_scorer(finished_run, tmp_path / "out", Listing(base_model=str(copied))).folder

    with pytest.raises(CheckpointError, match="trained on backbone"):
        EnsembleScorer.load(folder, device="cpu")


def test_a_backbone_in_a_local_folder_is_pointed_out(finished_run, tmp_path):
    export = export_scorer(finished_run, tmp_path / "out", Listing(base_model="/models/mine"))

    assert any("/models/mine" in line and "--base-model" in line for line in export.left_out)


def test_a_card_without_a_licence_says_so(finished_run, tmp_path, metadata_of):
    card = (export_scorer(finished_run, tmp_path / "out").folder / "README.md").read_text(encoding="utf-8")

    assert metadata_of(card)["license"] == "unknown"
    assert "None was stated" in card


def test_a_run_without_a_scorer_says_what_makes_it(run_folder, tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    shutil.copy(run_folder / "recipe.json", folder)

    with pytest.raises(CheckpointError, match="`raydebm train` makes it"):
        export_scorer(FinishedRun.read(str(folder)), tmp_path / "out")


def test_a_folder_that_is_no_run_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"recipe\.json does not exist"):
        FinishedRun.read(str(tmp_path))


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

    assert FinishedRun.read(str(folder)).is_current("scorer") is expected


def test_a_checkpoint_name_that_is_neither_folder_nor_repository_is_an_error(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    with pytest.raises(CheckpointError, match="'runs/scorer' is not a folder here, and the hub gave no repository"):
        EnsembleScorer.load("runs/scorer")
