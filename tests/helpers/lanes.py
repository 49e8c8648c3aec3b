"""The two lanes of the tests.

The first lane says whether a change is right; ``make test`` runs it. The second lane has what takes long for its kind:
processes are killed, a browser is opened, wheels are built, parsers are fuzzed, clusters are started, studies train
several times. ``make test-all`` runs both.
"""

import subprocess
import time
from pathlib import Path, PurePosixPath

import pytest

KINDS = {
    "damage": "kills processes of a running system",
    "browser": "opens pages in Chromium",
    "wheel": "builds and installs distributions",
    "fuzz": "generates inputs in large numbers",
    "cluster": "starts a Ray of its own, or many processes on one",
    "study": "trains or evaluates several times",
}
"""The second lane's kinds of tests, each a pytest marker."""

FOLDERS = {"tests/damage": "damage", "tests/wheels": "wheel", "tests/fuzz": "fuzz", "tests/pipeline/studies": "study"}
"""Folders whose tests are all of one kind; of ``study`` those alone that need Ray."""

ON_RAY = "tests/on_ray"
"""The first lane's tests on Ray; all share one cluster."""

ONE_OF_EACH = {
    "damage": "tests/damage/test_damaged_generation.py::"
    "test_every_row_is_there_and_only_what_was_in_flight_is_paid_twice[0]",
    "browser": "tests/service/page/test_pages.py::test_a_sample_problem",
    "wheel": "tests/wheels/test_raydebm_wheel.py",
    "fuzz": "tests/fuzz/test_targets.py::test_any_text",
    "cluster": "tests/pipeline/ray/test_label.py",
    "study": "tests/pipeline/studies/test_seeds.py",
}
"""What continuous integration runs of each kind, whatever has changed: prefixes of test ids."""

BUDGET_S = 1_100
"""Seconds that the first lane's tests may take, summed over processes, on a machine of two idle cores."""


def add_options(parser: pytest.Parser) -> None:
    group = parser.getgroup("lanes")
    group.addoption("--lane", choices=["first", "second"], help="run one of the two lanes; default: both")
    group.addoption(
        "--touched", metavar="REF", help="of the second lane: folders changed since REF, and one of each kind"
    )
    group.addoption("--stop-after", type=float, metavar="SECONDS", help="skip the tests that have not begun by then")


def kind_of(item: pytest.Item, *, needs_ray: bool) -> str | None:
    """The second lane's kind of a test; None: it is of the first lane."""
    marked = next((name for name in KINDS if item.get_closest_marker(name)), None)
    if marked is not None:
        return marked
    if {"chromium", "open_page"} & set(getattr(item, "fixturenames", ())):
        return "browser"
    file = item.nodeid.partition("::")[0]
    kind = next((kind for folder, kind in FOLDERS.items() if file.startswith(f"{folder}/")), None)
    on_ray = needs_ray and (item.get_closest_marker("ray") or "local_ray" in getattr(item, "fixturenames", ()))
    if kind is not None and (kind != "study" or on_ray):
        return kind
    return "cluster" if on_ray and not file.startswith(f"{ON_RAY}/") else None


def select(items: list[pytest.Item], config: pytest.Config, kinds: dict[str, str | None]) -> None:
    """Keep the tests of the lane, and of the touched folders, that the options name."""
    lane, since = config.getoption("--lane"), config.getoption("--touched")
    if since is not None:
        folders, representatives = touched(config.rootpath, since), tuple(ONE_OF_EACH.values())
        keep = [
            item
            for item in items
            if kinds[item.nodeid] and (item.nodeid.startswith(representatives) or is_below(item.nodeid, folders))
        ]
        keep.sort(key=lambda item: not item.nodeid.startswith(representatives))
    elif lane is not None:
        keep = [item for item in items if (kinds[item.nodeid] is None) == (lane == "first")]
    else:
        return
    config.hook.pytest_deselected(items=[item for item in items if item not in set(keep)])
    items[:] = keep


def touched(root: Path, since: str) -> set[str]:
    """Folders of tests that belong to what changed since a commit: of ``raydebm/service/page/`` the tests of the
    same path, or of the nearest folder above that has tests."""
    command = ["git", "diff", "--name-only", since]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=root)
    if done.returncode != 0:
        raise pytest.UsageError(f"--touched {since}: {done.stderr.strip()}; give a commit that this clone has")
    folders = set()
    for name in done.stdout.split():
        path = PurePosixPath(name)
        if path.parts[0] not in ("raydebm", "tests"):
            continue
        folder = PurePosixPath("tests", *path.parts[1:-1])
        while not (root / folder).is_dir():
            folder = folder.parent
        if folder != PurePosixPath("tests"):
            folders.add(str(folder))
    return folders


def is_below(nodeid: str, folders: set[str]) -> bool:
    return any(nodeid.startswith(f"{folder}/") for folder in folders)


class Clock:
    """Sums up what the tests take, and ends a session that has had its time."""

    def __init__(self, config: pytest.Config) -> None:
        self._began, self._stop_after = time.monotonic(), config.getoption("--stop-after")
        self._seconds, self._num_tests = 0.0, 0

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        if self._stop_after is not None and time.monotonic() - self._began > self._stop_after:
            pytest.skip("not begun in the time of --stop-after; the nightly run has it")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds += report.duration
        self._num_tests += report.when == "call"

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
        if self._num_tests < 1_000 or hasattr(config, "workerinput"):
            return
        budget = f" of {BUDGET_S:,}" if config.getoption("--lane") == "first" else ""
        minutes, seconds = divmod(round(time.monotonic() - self._began), 60)
        load = " ".join(Path("/proc/loadavg").read_text().split()[:3]) if Path("/proc/loadavg").exists() else "unknown"
        terminalreporter.write_line(
            f"{self._num_tests:,} tests took {self._seconds:,.0f}{budget} process-seconds, "
            f"{minutes} min {seconds} s by the clock; load over 1, 5 and 15 minutes: {load}"
        )
