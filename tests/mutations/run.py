"""Apply each mutation of mutations.yaml to a copy of the code, and run the tests that docs/paper.md names for it.

    python tests/mutations/run.py [--workers 2] [ID ...]

Exits with 1 where a mutation survives, or where nothing can be said about one: its text does not occur exactly once in
its file, no row of the page has it, its tests do not run, or they fail without it.
"""

import argparse
import importlib.util
import multiprocessing
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "helpers"))

from paper_page import paper_rows  # noqa: E402 - found by the line above

PRELOADED = ["torch", "transformers", "peft", "scipy.stats", "hypothesis", "pydantic", "pytest"]
"""What takes longest to import; tests run in processes forked from one that has imported it."""
TIMEOUT_S, ALL_TESTS_S = 600.0, 3600.0
ROWS = paper_rows()
PASSED, FAILED = 0, 1
"""Exit codes of pytest; others mean that it could not run the tests."""


@dataclass(frozen=True, slots=True)
class Mutation:
    id: str
    file: str
    old: str
    new: str

    def applied(self, text: str) -> str:
        """Raises ValueError where the old text does not occur exactly once."""
        if text.count(self.old) != 1:
            raise ValueError(f"{self.old!r} occurs {text.count(self.old)} times in {self.file}; mend or drop it")
        return text.replace(self.old, self.new)


def mutations() -> list[Mutation]:
    listed = yaml.safe_load((Path(__file__).parent / "mutations.yaml").read_text(encoding="utf-8"))
    return [Mutation(**entry) for entry in listed]


def tests_of(mutation: Mutation) -> list[str]:
    return list(dict.fromkeys(test for row in ROWS if mutation.id in row.mutations for test in row.tests))


def copy_of_the_code(folder: Path) -> Path:
    """Copy what git tracks or would track, results apart, so that uncommitted tests are run too."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, check=True, capture_output=True,
    ).stdout.decode()  # fmt: skip
    for name in listed.split("\0"):
        if name and not name.startswith("docs/results/") and (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, folder / name)
    return folder


def run_tests(folder: str, tests: Sequence[str], log: str) -> None:
    """Run in a process of its own: ends it with pytest's exit code."""
    output = os.open(log, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.chdir(folder)
    elsewhere = [place for place in sys.path if not place.startswith(str(ROOT / "tests"))]
    sys.path[:] = [folder, f"{folder}/client", *elsewhere]
    os.environ["PYTHONPATH"] = f"{folder}:{folder}/client"
    import pytest

    sys.exit(int(pytest.main(["-x", "-q", "-n", "0", "-p", "no:cacheprovider", *tests])))


class Copies:
    """Copies of the code, one for each worker."""

    def __init__(self, folder: Path, count: int) -> None:
        self._free: queue.Queue[Path] = queue.Queue()
        self._processes = multiprocessing.get_context("forkserver")
        self._processes.set_forkserver_preload(PRELOADED)
        for index in range(count):
            self._free.put(copy_of_the_code(folder / f"copy-{index}"))

    def outcome(
        self, tests: Sequence[str], mutation: Mutation | None = None, *, timeout_s: float = TIMEOUT_S
    ) -> tuple[int | None, str]:
        """Exit code of the tests, None after the time limit, and what they printed."""
        folder = self._free.get()
        file = None if mutation is None else folder / mutation.file
        original = None if file is None else file.read_text(encoding="utf-8")
        log = folder.with_suffix(".log")
        try:
            if file is not None and mutation is not None and original is not None:
                _write(file, mutation.applied(original))
            process = self._processes.Process(target=run_tests, args=(str(folder), list(tests), str(log)))
            process.start()
            process.join(timeout_s)
            if process.is_alive():
                process.kill()
                process.join()
                return None, ""
            return process.exitcode, log.read_text(encoding="utf-8", errors="replace")
        finally:
            if file is not None and original is not None:
                _write(file, original)
            self._free.put(folder)


def _write(file: Path, text: str) -> None:
    file.write_text(text, encoding="utf-8")
    # Python believes compiled code of the same size and second.
    Path(importlib.util.cache_from_source(str(file))).unlink(missing_ok=True)


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def verdict(copies: Copies, mutation: Mutation) -> tuple[str, str]:
    """("killed", "SURVIVED" or "ERROR"), and why."""
    if not tests_of(mutation):
        return "ERROR", "no row of docs/paper.md has it"
    try:
        code, output = copies.outcome(tests_of(mutation), mutation)
    except (ValueError, OSError) as error:
        return "ERROR", str(error)
    if code == PASSED:
        return "SURVIVED", ", ".join(tests_of(mutation))
    if code is None:
        return "ERROR", f"no end within {TIMEOUT_S:.0f} s, which says nothing about the mutation"
    if code != FAILED:
        return "ERROR", f"pytest ends with {code}: {output[-800:]}"
    failed = [line.split(" - ")[0] for line in output.splitlines() if line.startswith("FAILED ")]
    return "killed", failed[0].removeprefix("FAILED ") if failed else ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ids", nargs="*", metavar="ID", help="Default: all.")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    chosen = [each for each in mutations() if not options.ids or each.id in options.ids]
    if unknown := set(options.ids) - {each.id for each in chosen}:
        parser.error(f"no mutation is named {', '.join(sorted(unknown))}")
    os.environ.update(HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false", OMP_NUM_THREADS="1")
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutations-") as folder:
        copies = Copies(Path(folder), options.workers)
        every = dict.fromkeys(test for each in chosen for test in tests_of(each))
        code, output = copies.outcome(list(every), timeout_s=ALL_TESTS_S)
        if code != PASSED:
            say(f"the tests fail without any mutation (pytest ends with {code}):\n{output[-4000:]}")
            return 1
        say(f"{len(every)} tests pass without any mutation, {time.monotonic() - started:.0f} s")
        with ThreadPoolExecutor(options.workers) as pool:
            verdicts = list(pool.map(lambda each: _reported(copies, each), chosen))
    bad = [name for name, result in zip((each.id for each in chosen), verdicts, strict=True) if result != "killed"]
    left = f"; not killed: {', '.join(bad)}" if bad else ""
    say(f"{len(chosen) - len(bad)} of {len(chosen)} mutations killed, {time.monotonic() - started:.0f} s{left}")
    return 1 if bad else 0


def _reported(copies: Copies, mutation: Mutation) -> str:
    started = time.monotonic()
    result, why = verdict(copies, mutation)
    say(f"{result:8} {mutation.id} ({time.monotonic() - started:.0f} s): {why}")
    return result


if __name__ == "__main__":
    sys.exit(main())
