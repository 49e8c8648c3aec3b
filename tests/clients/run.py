"""Other people's clients against a service over HTTP, each in an environment of its own.

    python tests/clients/run.py [NAME ...] [--write docs/clients.md]

For each client in ``CLIENTS``: a virtual environment below ``.clients/`` with that client alone, from the package index
that pip is configured for; then ``scenes/<name>.py`` in it, each of whose functions is one use of the client. The
service is ``serve_config.yaml`` on a Ray of its own, over a tiny run, with an endpoint whose answer is always the same,
so that what must come out is known: see ``live_service``. Exit status 1 where a use fails that worked when ``scenes``
was written.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
ENVIRONMENTS = REPOSITORY / ".clients"
CLIENTS: Mapping[str, Sequence[str]] = {
    "openai": ("openai",),
    "openai_2": ("openai<3",),
    "litellm": ("litellm",),
    "cohere": ("cohere",),
    "langchain": ("langchain-openai", "langchain-cohere"),
}
"""What is installed for each. A number behind the name is that of an older version with the same uses."""
USES = ("chat", "stream", "abstention", "structured", "rerank")
PUZZLE = (
    "A very special island is inhabited only by knights and knaves. Knights always tell the truth, and knaves always "
    'lie. You meet 2 inhabitants: Ava, and Zoey. Ava said, "Zoey is a knave if and only if Zoey is a knight." '
    '"Ava is a knave," Zoey mentioned. So who is a knight and who is a knave?'
)


@contextmanager
def live_service() -> Iterator[str]:
    """The address of a service whose only generator always gives the right answer.

    ``raydebm/knights_knaves`` accepts it; ``raydebm/knights_knaves@strict`` abstains: any sigma is above its
    thresholds.
    """
    sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "tests" / "damage")]
    from loaded_service import service

    strict = {"theta_sigma": 1e-9, "theta_abstain": 1e-8}
    with tempfile.TemporaryDirectory() as folder, service(Path(folder), policies={"strict": strict}) as served:
        yield served.url


def environment(name: str) -> Path:
    """The Python of the client's environment, made where it is not there."""
    folder = ENVIRONMENTS / name
    python = folder / "bin" / "python"
    if not (folder / ".ready").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]
        own = {key: value for key, value in os.environ.items() if key != "PIP_CONSTRAINT"}  # ours pin other versions
        subprocess.run([str(python), *install, *CLIENTS[name]], check=True, env=own)
        (folder / ".ready").touch()
    return python


def outcome(name: str, url: str) -> dict[str, object]:
    """Versions, and what came of each use: ``{"versions": {...}, "uses": {use: [ok, words]}}``."""
    own = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "OPENAI", "CO_"))}
    own |= {"RAYDEBM_URL": url, "PUZZLE": PUZZLE, "NO_PROXY": "127.0.0.1", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    packages = [re.split(r"[<\[]", package)[0] for package in CLIENTS[name]]
    command = [str(environment(name)), str(HERE / "in_environment.py"), name.rstrip("_0123456789"), *packages]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=own, check=False)
    if done.returncode:
        return {"versions": {}, "uses": {use: [False, done.stderr.strip()[-300:]] for use in USES}}
    report: dict[str, object] = json.loads(done.stdout.strip().splitlines()[-1])
    return report


def table(outcomes: Mapping[str, dict[str, object]]) -> str:
    """The results as Markdown."""
    lines = [f"| client | {' | '.join(USES)} |", f"|---|{'---|' * len(USES)}"]
    for name, each in outcomes.items():
        versions, uses = each["versions"], each["uses"]
        assert isinstance(versions, dict)
        assert isinstance(uses, dict)
        known = ", ".join(f"{package} {version}" for package, version in versions.items())
        cells = [words_of(uses.get(use)) for use in USES]
        lines.append(f"| {known or name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def words_of(use: Sequence[object] | None) -> str:
    if use is None:
        return "-"
    is_right, words = use
    return str(words).replace("|", "/").replace("\n", " ") if is_right else f"**fails**: {words}".replace("|", "/")


def main() -> None:
    """Run the named clients, or all of them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", choices=[*CLIENTS, []], help="clients; default: all of them")
    parser.add_argument("--write", type=Path, help="a document whose table between the marks is replaced")
    args = parser.parse_args()
    outcomes = {}
    with live_service() as url:
        for name in args.names or CLIENTS:
            print(f"{name} ...", file=sys.stderr, flush=True)
            outcomes[name] = outcome(name, url)
    result = table(outcomes)
    print(result)
    if args.write is not None:
        begin, end = "<!-- results -->\n", "<!-- end of results -->"
        before, _, rest = args.write.read_text(encoding="utf-8").partition(begin)
        _, _, after = rest.partition(end)
        today = datetime.now(UTC).date().isoformat()
        python = f"{sys.version_info.major}.{sys.version_info.minor}"
        text = f"{before}{begin}\n{today}, Python {python}:\n\n{result}\n\n{end}{after}"
        args.write.write_text(text, encoding="utf-8")
    failed = [
        f"{name}: {use}"
        for name, each in outcomes.items()
        for use, (is_right, _) in dict(each["uses"]).items()  # type: ignore[call-overload]
        if not is_right
    ]
    if failed:
        sys.exit(f"{len(failed)} uses fail: {', '.join(failed)}")


if __name__ == "__main__":
    main()
