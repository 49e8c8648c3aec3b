"""Recorded HTTP requests and responses of a service of scripted parts: ``golden/<group>.json``, one pair a line.

    python tests/service/golden_pairs.py --update

asks all requests again and writes the responses. A group has a scene (the service's arguments) and pairs that are asked
in order, so that a later one may be about an earlier one: ``{record}`` in a path is the newest ``record_id``. Of a
pair with ``keep`` these places alone are recorded, and of a ``quiet`` one no comments of a stream.
Whatever differs between two runs of the same code is replaced by ``*``.
"""

import json
import os
import re
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from decisions_by_hand import bearer, keyring
from hand_written_run import PUZZLE, RIGHT, SURE, UNREADABLE, UNSURE, WRONG, Client, HandWritten, run_at

from raydebm.decision.evidence.posterior import Posterior
from raydebm.decision.policy import Policy
from raydebm.errors import ResourceError
from raydebm.service.core import TriageService
from raydebm.service.routes.application import create_app
from raydebm.service.settings import AppArgs, load_bundle
from raydebm.service.store.record import DecisionWriter

FOLDER = Path(__file__).parent / "golden"
LIMITS = {"max_problem_chars": 2000, "max_candidate_chars": 2000}
KEYS = {"reader": {"decisions": False}, "auditor": {"decisions": True}, "busy": {"per_day": {"candidates": 2}}}
POLICIES = {
    "paper": Policy(num_regenerate=2),
    "posterior": Policy(
        rule="posterior",
        posterior=Posterior(weights={"votes": 1.0}, context_weights={}),
        tau_accept=0.6,
        tau_answer=0.4,
        num_regenerate=2,
    ),
}
TEXTS = {"right": RIGHT, "wrong": WRONG, "unreadable": UNREADABLE, "failed": None}
WRITERS = {
    **{name: lambda request, text=text: text for name, text in TEXTS.items()},
    "mixed": lambda request: RIGHT if request.generator == "ada" else WRONG,
    "right after feedback": lambda request: WRONG if request.pass_index == 1 else RIGHT,
    "down": lambda request: ResourceError("the generator is gone"),
    "broken": lambda request: ZeroDivisionError("secret detail"),
}
SHORT = {"puzzle": PUZZLE, "right": RIGHT, "wrong": WRONG}
"""Long texts, by the words that stand for them in the files."""
ENERGIES = {"sure": SURE, "unsure": UNSURE, "none": None}
VOLATILE = frozenset(
    {"created", "created_at", "first", "last", "record_id", "resets_at", "seconds", "time", "times"}
    | {"latency_ms", "latency_p50_ms", "latency_p95_ms", "stages_ms"}
)
HEADERS = ("retry-after", "www-authenticate")


class Scene:
    """One service, whose parts say what each pair names."""

    def __init__(self, folder, *, policy="paper", args=None, stored=False, keyed=False):
        run_dir = run_at(Path(folder) / "run", policy=POLICIES[policy])
        self.folder, self.backend, self.record = str(folder), HandWritten(), "none"
        bundle = load_bundle(AppArgs(run_dir=run_dir, **{"max_body_bytes": 20_000, **(args or {})}))
        bundle = replace(bundle, **LIMITS)
        self.writer = DecisionWriter(bundle.records.folder, flush_s=3600) if stored else None
        service = TriageService(bundle, self.backend, records=self.writer)
        self.client = Client(create_app(service, keyring=keyring(**KEYS) if keyed else None))

    def ask(self, pair):
        """The response to one pair's request, without what differs from time to time."""
        self.backend.write = WRITERS[pair.get("writes", "right")]
        energies = ENERGIES[pair.get("energies", "sure")]
        self.backend.energies = lambda text: energies
        self.backend.ready, self.backend.finish_reason = pair.get("ready", True), pair.get("finish_reason")
        self.backend.requests.clear()
        headers = {"X-Request-ID": "golden", **bearer(pair.get("key"))}
        path = pair["path"].replace("{record}", self.record)
        body = _replaced(pair.get("body"), {f"{{{name}}}": text for name, text in SHORT.items()})
        given = {"content": pair["content"]} if "content" in pair else {"json": body} if "body" in pair else {}
        if "content" in given:
            headers["Content-Type"] = "application/json"
        reply = self.client.request(pair["method"], path, headers=headers, **given)
        if self.writer is not None:
            self.writer.flush()
        answered = re.search(r'"record_id": ?"(\w+)"', reply.text)
        if answered and pair["path"] in ("/v1/triage", "/v1/chat/completions"):
            self.record = answered[1]
        shown = {
            name: "*" if name == "retry-after" else reply.headers[name] for name in HEADERS if name in reply.headers
        }
        content = self._content(reply, pair.get("quiet", False))
        if "keep" in pair:
            content = {place: _value_at(content, place.split(".")) for place in pair["keep"]}
        return {"status": reply.status_code, **({"headers": shown} if shown else {}), **content}

    def _content(self, reply, quiet):
        if not reply.headers["content-type"].startswith("text/event-stream"):
            return {"reply": self._settled(reply.json())}
        events = []
        for block in reply.text.strip().split("\n\n"):
            if quiet and block.startswith(":"):
                continue
            lines = dict(line.partition(":")[::2] for line in block.splitlines())
            data = lines.get("data", "").strip()
            told = self._settled(json.loads(data)) if data.startswith("{") else data
            events.append({name: text.strip() for name, text in lines.items() if name != "data"} | {"data": told})
        return {"events": events}

    def _settled(self, value, name=""):
        if name in VOLATILE and value is not None:
            return "*"
        if isinstance(value, dict):
            return {key: self._settled(each, key) for key, each in value.items()}
        if isinstance(value, list):
            return [self._settled(each, name) for each in value]
        if isinstance(value, str):
            known = {text: f"{{{name}}}" for name, text in SHORT.items()}
            value = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+(Z|\+00:00)", "*", value)
            return _replaced(value, {self.folder: "*", self.record: "{record}", **known})
        return value

    def close(self):
        if self.writer is not None:
            self.writer.close()


def _value_at(value, steps):
    """The value at a place of a JSON value, such as ``reply.choices.0.message``."""
    for step in steps:
        value = value[int(step)] if isinstance(value, list) else value[step]
    return value


def _replaced(value, words):
    """Texts anywhere in a JSON value, with words replaced."""
    if isinstance(value, dict):
        return {key: _replaced(each, words) for key, each in value.items()}
    if isinstance(value, list):
        return [_replaced(each, words) for each in value]
    if isinstance(value, str):
        for before, after in words.items():
            value = value.replace(before, after)
    return value


def groups():
    """Names of the recorded groups."""
    return sorted(path.stem for path in FOLDER.glob("*.json"))


def recorded(name):
    """The scene and the pairs of a group."""
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))


def asked(name, folder):
    """(pair, response) of each request of a group, asked now."""
    group = recorded(name)
    scene = Scene(folder, **group["scene"])
    try:
        for pair in group["pairs"]:
            yield pair, scene.ask(pair)
    finally:
        scene.close()


def update(name):
    """Write the responses of today's code."""
    with tempfile.TemporaryDirectory() as folder:
        pairs = [{**pair, "response": response} for pair, response in asked(name, folder)]
    lines = ",\n".join(json.dumps(pair, ensure_ascii=False, separators=(",", ":")) for pair in pairs)
    scene = json.dumps(recorded(name)["scene"])
    (FOLDER / f"{name}.json").write_text(f'{{"scene": {scene}, "pairs": [\n{lines}\n]}}\n', encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:] != ["--update"]:
        sys.exit("give --update to write the responses of today's code")
    os.environ.pop("RAYDEBM_API_KEYS", None)
    for each in groups():
        update(each)
