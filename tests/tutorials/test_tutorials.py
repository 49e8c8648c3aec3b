"""The tutorials, run as a reader would: files are written, commands run, outputs compared, Python executed in order."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections import Counter

import pytest

BLOCK = re.compile(r"(?:<!-- (?P<note>[^>]*) -->\n)?```(?P<kind>\w+)\n(?P<body>.*?)```\n", re.DOTALL)
COUNTS = {
    "a_task": {"file": 8, "sh": 5, "text": 3},
    "a_term_of_evidence": {"file": 2, "sh": 1, "python": 1},
    "a_selector": {"file": 2, "sh": 1, "python": 1},
    "fields": {"from": 4, "sh": 3, "python": 3},
}
"""Blocks that are run, by page and kind."""
FOLDERS = {"fields": "invoices"}
"""Folder of files that the reader copies, by page."""
MINUTES = {"fields"}
"""Pages that train on data of a size that is worth it."""
PROGRAMS = {"python": [], "raydebm": ["-m", "raydebm"], "pytest": ["-m", "pytest", "-p", "no:cacheprovider"]}


def blocks_of(repository, page):
    text = (repository / "docs" / "tutorials" / f"{page}.md").read_text(encoding="utf-8")
    return [(block["note"] or "", block["kind"], block["body"]) for block in BLOCK.finditer(text)]


def python(arguments, folder, note):
    """A Python process in the reader's folder, with the environment that the note sets."""
    own = dict(pair.split("=") for pair in note.removeprefix("environment: ").split()) if "environment" in note else {}
    own["PYTHONPATH"] = os.pathsep.join(filter(None, [own.get("PYTHONPATH"), os.environ["PYTHONPATH"]]))
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True, text=True, check=False, timeout=600, cwd=folder, env=os.environ | own,
    )  # fmt: skip


def run(body, folder, note):
    """The commands' output, which goes on in the block after it."""
    code = re.fullmatch(r"exit code: (\d)", note)
    said = ""
    for line in body.replace("\\\n", " ").splitlines():
        program, *arguments = shlex.split(line)
        done = python([*PROGRAMS[program], *arguments], folder, note)
        said += done.stdout + done.stderr
        assert done.returncode == (int(code[1]) if code else 0), said
    return said


@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=pytest.mark.cluster if page in MINUTES else ()) for page in COUNTS]
)
def test_every_block_does_what_the_page_says(page, repository, tmp_path):
    said, script, counts = "", "", Counter()
    if page in FOLDERS:
        shutil.copytree(repository / "docs" / "tutorials" / FOLDERS[page], tmp_path / FOLDERS[page])
    for note, kind, body in blocks_of(repository, page):
        if note.startswith("not run here"):
            continue
        if note.startswith("file: "):
            file = tmp_path / note.removeprefix("file: ").strip()
            file.parent.mkdir(exist_ok=True)
            file.write_text(body, encoding="utf-8")
            kind = "file"
        elif note.startswith("from: "):
            assert body in (tmp_path / note.removeprefix("from: ").strip()).read_text(encoding="utf-8")
            kind = "from"
        elif kind == "sh":
            said = run(body, tmp_path, note)
        elif kind == "text":
            missing = [line for line in body.splitlines() if line not in said]
            assert missing == [], said
        elif kind == "python":  # a block goes on where the one before it ended
            script += body
            done = python(["-c", script], tmp_path, note)
            assert done.returncode == 0, done.stderr
        counts[kind] += 1

    assert counts == COUNTS[page]


@pytest.mark.parametrize("page", COUNTS)
def test_the_commands_that_are_not_run_here_are_commands(page, repository):
    """Every `raydebm` line of the page is a verb that exists, with options that exist."""
    lines = [
        line.split("|")[0]
        for note, kind, body in blocks_of(repository, page)
        if kind == "sh" and note.startswith("not run here")
        for line in body.splitlines()
        if line.startswith("raydebm")
    ]
    for line in lines:
        words = shlex.split(line)[1:]
        verb = words[:2] if words[0] == "task" else words[:1]
        done = subprocess.run(
            [sys.executable, "-m", "raydebm", *verb, "--help"], capture_output=True, text=True, check=True
        )
        assert all(option in done.stdout for option in words if option.startswith("--"))
    assert lines
