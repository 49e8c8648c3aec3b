"""The audit fails for a known vulnerability, and an audit of nothing says that it is none."""

import importlib.util
import json
import sys

import pytest

CLEAN = {"name": "b", "version": "2.0", "vulns": []}
UNKNOWN = {"name": "c", "skip_reason": "Dependency not found"}
FAULTY = {"name": "a", "version": "1.0", "vulns": [{"id": "PYSEC-1", "fix_versions": ["1.1", "2.0"]}]}
UNFIXED = {"name": "a", "version": "1.0", "vulns": [{"id": "PYSEC-2", "fix_versions": []}]}


@pytest.fixture(scope="module")
def audit(repository):
    spec = importlib.util.spec_from_file_location("audit", repository / ".ci" / "audit.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def tool(tmp_path):
    """A program in pip-audit's place that writes and exits as told."""

    def write(stdout, *, stderr="", code=0):
        file = tmp_path / "pip-audit"
        file.write_text(
            f"#!{sys.executable}\nimport sys\n"
            f"sys.stdout.write({stdout!r})\nsys.stderr.write({stderr!r})\nsys.exit({code})\n"
        )
        file.chmod(0o755)
        return str(file)

    return write


@pytest.mark.parametrize(
    ("packages", "code", "lines"),
    [
        ([CLEAN], 0, ["1 packages audited"]),
        ([CLEAN, UNKNOWN], 0, ["1 packages audited, 1 unknown to the index"]),
        ([FAULTY, CLEAN], 1, ["a 1.0: PYSEC-1, fixed in 1.1, 2.0", "2 packages audited"]),
        ([UNFIXED], 1, ["a 1.0: PYSEC-2, fixed in no version yet", "1 packages audited"]),
        (
            [UNKNOWN],
            0,
            ["not audited: the index knows none of 1 packages; run it where the advisories can be read"],
        ),
    ],
    ids=["clean", "partly unknown", "vulnerable", "without a fix", "nothing known"],
)
def test_exit_code_and_lines(audit, tool, capsys, packages, code, lines):
    report = json.dumps({"dependencies": packages, "fixes": []})

    assert audit.main(tool(report, code=code), "constraints.txt") == code
    assert capsys.readouterr().out.splitlines() == lines


def test_a_tool_that_fails_is_no_finding(audit, tool, capsys):
    assert audit.main(tool("", stderr="a traceback\nConnectionError: no route\n", code=1), "constraints.txt") == 0
    assert capsys.readouterr().out == "not audited: pip-audit ended with exit code 1: ConnectionError: no route\n"


def test_a_missing_tool_is_no_finding(audit, capsys):
    assert audit.main("/nowhere/pip-audit", "constraints.txt") == 0
    assert capsys.readouterr().out == "not audited: /nowhere/pip-audit cannot be run: No such file or directory\n"


def test_a_tool_that_hangs_is_ended(audit, tmp_path):
    file = tmp_path / "pip-audit"
    file.write_text("#!/bin/sh\nexec sleep 600\n")
    file.chmod(0o755)

    with pytest.raises(audit.NotAuditedError, match=r"no report within 0\.2 s"):
        audit.looked_up(str(file), "constraints.txt", limit_s=0.2)
