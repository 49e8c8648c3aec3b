"""What ``raydebm serve`` does, on real Ray Serve, over the starter task's run: it is asked, ended, and then looked at.

No configuration file, a generator that asks too much in pass 1 and is fair in pass 2, a random local model, and
decisions that are written an hour later.
"""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import httpx
from tiny_service_run import recorded_passes

from raydebm.decision.policy import Policy
from raydebm.run.tables import CANDIDATES
from raydebm.service.ray.app import start_local, stop_serve
from raydebm.service.settings import AppArgs
from raydebm.tasks import task_of

NAME = "reply"
TYPED = {"message": "The zip broke.", "paid": 20}
GREEDY_REFUND = '{"reply": "Done.", "refund": 30, "articles": ["returns"]}'
FAIR_REFUND = '{"reply": "Sorry! It is on its way back to you.", "refund": 20, "articles": ["returns"]}'


@dataclass(frozen=True)
class LocalService:
    """What was known before, during and after."""

    port: int
    url: str
    records: Path
    typed: dict
    """The answer to ``TYPED`` as JSON."""
    prompted: dict
    """The answer to the same problem as prompt and data."""
    untyped: httpx.Response
    """What the chat route says to a message without the problem's fields."""
    was_written: bool
    """Whether a decision was written while the service ran."""


def complete(run, recipe, *, live_run, babbler):
    """Makes of a labelled run one that can be served.

    Args:
        run: its directory.
        recipe: the starter task's.
        live_run: has an ensemble.
        babbler: folder of a random causal model.
    """
    shutil.copytree(Path(live_run) / "scorer", Path(run.root) / "scorer")
    task = task_of(recipe.task)
    problem = task.problem_from_text(json.dumps(TYPED))
    rows = recorded_passes(task, problem, "scripted", [GREEDY_REFUND], [FAIR_REFUND])
    run.write_records(CANDIDATES, rows, "pool.parquet")
    generators = [
        {"kind": "recorded", "name": "scripted", "pool": run.uri("pool.parquet"), "model": "scripted"},
        {"kind": "transformers", "name": "babbler", "model": str(babbler), "max_tokens": 8},
    ]
    tree = run.read_json("recipe.json")
    run.write_json({**tree, "generators": generators, "generation": {"num_samples": 1}}, "recipe.json")
    # Random adapters disagree by any amount; these thresholds let constraints alone decide.
    run.write_json(Policy(theta_sigma=1e3, theta_abstain=1e4, num_regenerate=1).to_json(), "calibration", "policy.json")


def asked(run_dir, *, port, records):
    """Starts the service, asks it and ends it."""
    args = AppArgs(run_dir=run_dir, device="cpu", records={"folder": str(records)})
    url = start_local(args, port=port)
    try:
        problem = {"prompt": "Message: The zip broke.\nPaid: 20", "data": TYPED}
        chat = {"model": f"raydebm/{NAME}", "messages": [{"role": "user", "content": TYPED["message"]}]}
        return LocalService(
            port=port,
            url=url,
            records=records,
            typed=_post(url, "/v1/triage", {"task": NAME, "problem": json.dumps(TYPED)}).json(),
            prompted=_post(url, "/v1/triage", {"problem": problem}).json(),
            untyped=_post(url, "/v1/chat/completions", chat),
            was_written=records.exists(),
        )
    finally:
        stop_serve()


def _post(url, path, body):
    return httpx.post(f"{url}{path}", json=body, timeout=240)
