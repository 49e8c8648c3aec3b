"""Coverage-guided fuzzing of one target or all: ``python tests/fuzz/run.py --executions 100000 [--target NAME ...]``.

Needs ``atheris``, which is no dependency of the package (``make fuzz`` installs it). Each target runs in a process of
its own. Texts that reach something new are kept in a folder per target below ``--corpus``, from which the next call
goes on. A text that breaks a target is written next to this file; as UTF-8 text in ``corpus/*.txt`` the tests try it
from then on.
"""

import argparse
import logging
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
CORPUS = HERE / "corpus"
MAX_CHARS = 2000

sys.path[:0] = [str(HERE), str(HERE.parents[1])]


def fuzz(name: str, executions: int, seed: int, corpus: Path) -> None:
    """Fuzz one target in this process, which ends with it.

    Args:
        name: of the target.
        executions: how many texts.
        seed: of the changes.
        corpus: where texts are kept; made where it is missing.
    """
    import atheris

    logging.disable()  # a stored decision that is left out would be a line
    file_name = name.replace(" ", "-").replace("'", "")
    kept = corpus / file_name
    kept.mkdir(parents=True, exist_ok=True)
    with atheris.instrument_imports(include=["raydebm"]):
        from targets import TOKENS, targets
    target = targets()[name]
    with tempfile.TemporaryDirectory() as folder:
        words = Path(folder) / "words"
        words.write_text("".join(f'"{_spelt(token)}"\n' for token in TOKENS))
        prefix = str(HERE / f"{file_name}-")
        options = [f"-runs={executions}", f"-seed={seed}", f"-max_len={MAX_CHARS}", f"-dict={words}"]
        atheris.Setup(
            [
                sys.argv[0],
                *options,
                f"-artifact_prefix={prefix}",
                "-timeout=20",
                "-verbosity=0",
                str(kept),
                str(CORPUS),
            ],
            lambda data: target(data.decode("utf-8", "replace")),
        )
        atheris.Fuzz()


def _spelt(token: str) -> str:
    return "".join(f"\\x{byte:02x}" for byte in token.encode("utf-8", "surrogatepass"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--executions", type=int, default=100_000, help="of each target")
    parser.add_argument("--target", action="append", help="one of them; may be repeated; default: all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--corpus", type=Path, default=HERE / "found", help="where texts are kept (default: found/)")
    parser.add_argument("--here", action="store_true", help="in this process; for one target")
    given = parser.parse_args()
    if given.here:
        fuzz(given.target[0], given.executions, given.seed, given.corpus)
        return 0
    from targets import targets

    failed = []
    for name in given.target or sorted(targets()):
        options = ["--here", "--target", name, "--executions", str(given.executions), "--seed", str(given.seed)]
        options += ["--corpus", str(given.corpus)]
        done = subprocess.run([sys.executable, __file__, *options], check=False)
        sys.stdout.write(f"{name}: {'broken' if done.returncode else f'{given.executions} executions'}\n")
        sys.stdout.flush()
        failed += [name] if done.returncode else []
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
