"""The tutorial, run as a reader would: files are written, commands run, outputs compared, Python executed in order."""

import re
import shlex
import subprocess
import sys

import pytest

BLOCK = re.compile(r"(?:<!-- (?P<note>[^>]*) -->\n)?```(?P<kind>\w+)\n(?P<body>.*?)```\n", re.DOTALL)


@pytest.fixture(scope="module")
def blocks(repository):
    text = (repository / "docs" / "write_a_task.md").read_text(encoding="utf-8")
    return [(found["note"] or "", found["kind"], found["body"]) for found in BLOCK.finditer(text)]


def run(body, folder, expected):
    """The commands' output, which goes on in the block after it."""
    said = ""
    for line in body.replace("\\\n", " ").splitlines():
        program, *arguments = shlex.split(line)
        assert program == "raydebm"
        done = subprocess.run(
            [sys.executable, "-m", "raydebm", *arguments],
            capture_output=True, text=True, check=False, timeout=240, cwd=folder,
        )  # fmt: skip
        said += done.stdout + done.stderr
        assert done.returncode == expected, said
    return said


def test_every_block_does_what_the_page_says(blocks, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said, names, counts = "", {}, dict.fromkeys(["file", "sh", "text", "python"], 0)
    for note, kind, body in blocks:
        if note.startswith("not run here"):
            continue
        if note.startswith("file: "):
            file = tmp_path / note.removeprefix("file: ").strip()
            file.parent.mkdir(exist_ok=True)
            file.write_text(body, encoding="utf-8")
            kind = "file"
        elif kind == "sh":
            code = re.fullmatch(r"exit code: (\d)", note)
            said = run(body, tmp_path, int(code[1]) if code else 0)
        elif kind == "text":
            missing = [line for line in body.splitlines() if line not in said]
            assert missing == [], said
        elif kind == "python":
            exec(compile(body, f"python block {counts['python']}", "exec"), names)
        counts[kind] += 1

    assert counts == {"file": 5, "sh": 4, "text": 2, "python": 4}


def test_the_commands_that_are_not_run_here_are_commands(blocks):
    """Every `raydebm` line of the page is a verb that exists, with options that exist."""
    lines = [
        line.split("|")[0]
        for note, kind, body in blocks
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
    assert len(lines) == 3
