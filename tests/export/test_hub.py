"""Pushing to a hub and reading from it, over HTTP and with the real client.

The client reads the hub's address when it is imported, so that each test here runs it in a process of its own.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from raydebm.cli import main
from raydebm.scorer.ensemble import EnsembleScorer

TEXTS = [["What is 1 plus 2?", "The sum is 3.\n#### 3"], ["What is 1 plus 2?", "The sum is 4.\n#### 4"]]
PUSH = """
import sys
from pathlib import Path
from raydebm.export.hub import push
print(push(Path(sys.argv[1]), sys.argv[2], kind=sys.argv[3], private=sys.argv[4] == "private"))
"""
EXPORT_AND_LOAD = """
import json, sys
from raydebm.cli import main
run, out, texts = sys.argv[1:]
try:
    main(["export", "--run-dir", run, "--out", out, "--push-to-hub", "someone/sums", "--private"])
except SystemExit as end:
    assert not end.code, end.code
from raydebm.scorer.ensemble import EnsembleScorer
scorer = EnsembleScorer.load("someone/sums@main", device="cpu")
print(json.dumps([text.members for text in scorer.score([tuple(text) for text in json.loads(texts)])]))
"""


@pytest.fixture
def hub():
    sys.path.insert(0, str(Path(__file__).parent))
    try:
        from fake_hub import FakeHub
    finally:
        sys.path.pop(0)
    server = FakeHub()
    yield server
    server.close()


def run_with(hub, tmp_path, script, *arguments):
    """The finished process of a script whose client talks to the fake hub."""
    environment = os.environ | {
        "HF_ENDPOINT": hub.address, "HF_TOKEN": "hf_secret", "HF_HOME": str(tmp_path / "home"), "HF_HUB_OFFLINE": "0",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1", "NO_PROXY": "127.0.0.1",
    }  # fmt: skip
    return subprocess.run(
        [sys.executable, "-c", script, *arguments], env=environment, capture_output=True, text=True, timeout=280
    )


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "out" / "a0").mkdir(parents=True)
    (tmp_path / "out" / "README.md").write_text("---\nlicense: mit\n---\n# card\n")
    (tmp_path / "out" / "a0" / "head.safetensors").write_bytes(b"weights")
    return tmp_path / "out"


@pytest.mark.parametrize(("kind", "privacy"), [("model", "private"), ("dataset", "public")])
def test_a_folder_is_pushed_whole_with_the_token(hub, tmp_path, folder, kind, privacy):
    ended = run_with(hub, tmp_path, PUSH, str(folder), "someone/thing", kind, privacy)

    assert ended.stdout.strip() == f"{hub.address}/someone/thing", ended.stderr
    repository = hub.repositories[kind, "someone/thing"]
    assert repository["private"] is (privacy == "private")
    assert repository["files"] == {
        "README.md": (folder / "README.md").read_bytes(),
        "a0/head.safetensors": b"weights",
    }
    assert "Bearer hf_secret" in hub.tokens


def test_a_hub_that_refuses_is_an_error_that_says_how_to_go_on(hub, tmp_path, folder):
    hub.refused = True
    ended = run_with(hub, tmp_path, PUSH, str(folder), "someone/thing", "model", "public")

    assert "ConfigError: the hub did not take 'someone/thing': " in ended.stderr
    assert f"`hf upload someone/thing {folder} --repo-type model`" in ended.stderr
    assert "hf_secret" not in ended.stderr


@pytest.mark.slow
def test_a_pushed_scorer_is_loaded_from_the_hub_by_its_name(hub, tmp_path, run_folder):
    ended = run_with(hub, tmp_path, EXPORT_AND_LOAD, str(run_folder), str(tmp_path / "out"), json.dumps(TEXTS))
    assert ended.returncode == 0, ended.stderr

    local = EnsembleScorer.load(run_folder / "scorer", device="cpu").score([tuple(text) for text in TEXTS])
    assert json.loads(ended.stdout.splitlines()[-1]) == [list(text.members) for text in local]
    assert (
        'EnsembleScorer.load("someone/sums")'
        in hub.repositories["model", "someone/sums"]["files"]["README.md"].decode()
    )
    # The card was pushed, and is not needed to score.
    assert not list((tmp_path / "home").rglob("snapshots/*/README.md"))


@pytest.mark.parametrize(
    ("repository", "token", "words"),
    [
        ("someone/thing", None, "set HF_TOKEN"),
        ("thing", "hf_x", "is called `owner/name`"),
        ("some one/thing", "hf_x", "is called `owner/name`"),
    ],
    ids=["no-token", "no-owner", "no-name"],
)
def test_what_cannot_be_pushed_is_refused_before_anything_is_written(
    run_folder, tmp_path, monkeypatch, capsys, repository, token, words
):
    monkeypatch.setattr("huggingface_hub.get_token", lambda: token)
    command = ["export", "--run-dir", str(run_folder), "--out", str(tmp_path / "out"), "--push-to-hub", repository]

    with pytest.raises(SystemExit) as ended:
        main(command)
    assert ended.value.code == 2
    assert words in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "out").exists()


def test_options_of_a_scorer_are_refused_for_pairs(run_folder, tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["export", "--run-dir", str(run_folder), "--out", str(tmp_path / "out"), "--pairs", "--repaired"])
    assert ended.value.code == 2
    assert "describe a scorer" in capsys.readouterr().err


def test_a_private_repository_needs_its_name(run_folder, tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["export", "--run-dir", str(run_folder), "--out", str(tmp_path / "out"), "--private"])
    assert ended.value.code == 2
    assert "give --push-to-hub with it" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
