"""Look the pinned packages up among known vulnerabilities: exit code 1 and one line per finding.

    python .ci/audit.py .audit/bin/pip-audit constraints.txt

Where nothing can be looked up (no network, or a mirror that knows no advisories) it says so and exits with 0: pip-audit
itself then either fails as it does for a finding, or reports that it found nothing.
"""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

LIMIT_S = 180.0
"""For all packages together; without a network each of them would wait for its own timeout."""

Package = Mapping[str, Any]


class NotAuditedError(Exception):
    """The tool gave no report; the message says why."""


def looked_up(tool: str, requirements: str, *, limit_s: float = LIMIT_S) -> list[Package]:
    """What ``pip-audit`` says of each pinned package.

    Raises:
        NotAuditedError: the tool is missing, took too long, or wrote no report.
    """
    command = [tool, "--requirement", requirements, "--no-deps", "--disable-pip", "--format", "json"]
    options = ["--desc", "off", "--progress-spinner", "off", "--timeout", "10"]
    try:
        done = subprocess.run([*command, *options], capture_output=True, text=True, timeout=limit_s, check=False)
    except subprocess.TimeoutExpired as error:
        raise NotAuditedError(f"no report within {limit_s:g} s") from error
    except OSError as error:
        raise NotAuditedError(f"{tool} cannot be run: {error.strerror}") from error
    try:
        packages: list[Package] = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError, TypeError) as error:
        last = (done.stderr.strip().splitlines() or ["it wrote nothing"])[-1]
        raise NotAuditedError(f"pip-audit ended with exit code {done.returncode}: {last[:300]}") from error
    return packages


def findings(packages: Sequence[Package]) -> Iterator[str]:
    """One line per known vulnerability."""
    for package in packages:
        for fault in package.get("vulns", ()):
            remedy = ", ".join(fault.get("fix_versions", ())) or "no version yet"
            yield f"{package['name']} {package['version']}: {fault['id']}, fixed in {remedy}"


def summary(packages: Sequence[Package]) -> str:
    """How many packages were looked up; an audit of nothing must not read like a clean one."""
    num_known = sum("vulns" in package for package in packages)
    if num_known == 0:
        return f"not audited: the index knows none of {len(packages)} packages; run it where the advisories can be read"
    unknown = len(packages) - num_known
    return f"{num_known} packages audited" + (f", {unknown} unknown to the index" if unknown else "")


def main(tool: str, requirements: str) -> int:
    """Print findings and summary; returns the exit code."""
    try:
        packages = looked_up(tool, requirements)
    except NotAuditedError as error:
        sys.stdout.write(f"not audited: {error}\n")
        return 0
    lines = list(findings(packages))
    sys.stdout.write("".join(f"{line}\n" for line in [*lines, summary(packages)]))
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
