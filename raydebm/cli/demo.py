"""``raydebm demo``: the whole pipeline on embedded models, then three questions to the service.

The questions are test problems that the run itself decided rightly. Seeds depend only on the request, so the
service samples the same candidates again and must make the same decisions.
"""

import json
import os
import time
import urllib.request
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.text import Text

from raydebm.cli import starter
from raydebm.cli.console import console, show_evaluation
from raydebm.cli.parameters import MAX_PORT
from raydebm.cli.pipeline import pipeline_for
from raydebm.errors import ConfigError

if TYPE_CHECKING:
    from raydebm.pipeline.runner import Pipeline
    from raydebm.records import Outcome

Kind = Literal["accept", "regenerate", "abstain"]
TITLES: dict[Kind, str] = {
    "accept": "POST /v1/chat/completions with the official openai client",
    "regenerate": "POST /v1/triage over plain HTTP",
    "abstain": "the same openai client, which gets a refusal",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A test problem as an example of one kind of decision."""

    outcome: "Outcome"
    first_correct: bool
    """True if the first pass selected a right answer."""
    correct: bool
    """True if the last pass selected a right answer, accepted or not."""


def demo(
    run_dir: Annotated[str, typer.Option("--run-dir", help="Folder of the demo's files.")] = "runs/demo",
    port: Annotated[int, typer.Option(min=0, max=MAX_PORT, help="Port of the service; 0 picks a free one.")] = 0,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the service's decisions as JSON.")
    ] = None,
) -> None:
    """Train, evaluate, serve and ask, offline on small models.

    Takes two to six minutes on two CPU cores; a second run reuses the results of the first.
    """
    from raydebm.config import load_recipe
    from raydebm.generators.endpoint.vllm import free_port
    from raydebm.service.ray.app import check_port

    if json_file is not None and (json_file.is_dir() or not json_file.absolute().parent.is_dir()):
        what = "is a folder; give a file in it" if json_file.is_dir() else "the folder does not exist; create it first"
        raise ConfigError(f"--json {str(json_file)!r}: {what}")
    # Ray's C++ part would print a line about restarts of actors, which do not happen in this short run.
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    port = port or free_port("127.0.0.1")
    check_port("127.0.0.1", port)
    started = time.monotonic()
    recipe = load_recipe(starter.RECIPE, overrides=[f"run_dir={run_dir}"])
    console.rule("raydebm: choose among LLM answers, and know when none can be trusted")
    console.print(
        f"Four small language models answer Knights & Knaves puzzles; five adapters learn which answers to trust.\n"
        f"No key, no GPU, no network. Files: {run_dir}\n"
    )
    with pipeline_for(recipe) as pipeline:
        from raydebm.pipeline.stages.passes import outcomes_of

        show_evaluation(pipeline)
        examples = choose_examples(outcomes_of(pipeline), _right_candidates(pipeline))
        decisions = _ask_service(run_dir, port, recipe.task.name, examples)
    if json_file is not None:
        json_file.write_text(json.dumps({"decisions": decisions}, indent=2) + "\n", encoding="utf-8")
    console.rule(f"done in {(time.monotonic() - started) / 60:.1f} minutes")
    console.print(_next_steps(run_dir))


# ---- questions -----------------------------------------------------------------------------------------------------


def choose_examples(outcomes: Iterable["Outcome"], right: Set[str]) -> dict[Kind, Example]:
    """Choose one right decision of each kind, by the ids of the right candidates. Kinds without one are left out."""
    examples: dict[Kind, Example] = {}
    for outcome in outcomes:
        example = Example(
            outcome=outcome,
            first_correct=outcome.passes[0].selected in right,
            correct=outcome.passes[-1].selected in right,
        )
        kind = _kind(example)
        if kind is not None:
            examples.setdefault(kind, example)
    return {kind: examples[kind] for kind in TITLES if kind in examples}


def _kind(example: Example) -> Kind | None:
    """Kind of a right decision: right answer accepted, wrong answer corrected, or wrong answer refused; else None."""
    from raydebm.records import Decision

    if example.outcome.decision is Decision.ABSTAIN:
        return None if example.correct else "abstain"
    if len(example.outcome.passes) == 1:
        return "accept" if example.correct else None
    return "regenerate" if example.correct and not example.first_correct else None


def _right_candidates(pipeline: "Pipeline") -> frozenset[str]:
    from raydebm.pipeline.context import TEST
    from raydebm.pipeline.pools import recorded_labels
    from raydebm.records import Verdict

    labels = recorded_labels(pipeline, TEST).values()
    return frozenset(label.candidate_id for label in labels if label.verdict is Verdict.CORRECT)


# ---- the service ---------------------------------------------------------------------------------------------------


def _ask_service(run_dir: str, port: int, task: str, examples: Mapping[Kind, Example]) -> dict[str, Any]:
    """Serve the run, send it the examples' problems, and return the decisions by kind."""
    from raydebm.service.ray.app import start_local, stop_serve
    from raydebm.service.settings import AppArgs

    console.rule("the service")
    console.print("starting …")
    url = start_local(AppArgs(run_dir=str(Path(run_dir).resolve())), port=port)
    try:
        console.print(f"listening on {url}\n")
        decisions = dict(_ask_all(url, task, examples))
    finally:
        stop_serve()
    for kind in TITLES:
        if kind not in examples:
            console.print(f"No test problem of this run is a good example of: {kind}", style="yellow")
    return decisions


def _ask_all(url: str, task: str, examples: Mapping[Kind, Example]) -> Iterator[tuple[str, dict[str, Any]]]:
    numbers = {kind: number for number, kind in enumerate(TITLES, start=1)}
    for kind, example in examples.items():
        console.print(Text.assemble((f"{numbers[kind]}. {kind}", "bold"), f": {TITLES[kind]}"))
        question = example.outcome.problem.prompt
        if kind == "regenerate":
            details = _post(f"{url}/v1/triage", {"task": task, "problem": question})
            _show_triage(details)
        else:
            reply = _ask_with_openai(url, task, question)
            details = reply["raydebm"]
            _show_chat(reply, question)
        yield kind, facts_of(example, details)


def facts_of(example: Example, details: Mapping[str, Any]) -> dict[str, Any]:
    """JSON values of the service's decision, and its equality with the decision in the run."""
    replayed = example.outcome
    return {
        "decision": details["decision"],
        "reason": details["reason"],
        "passes": details["num_passes"],
        "as_replayed": (details["decision"], details["num_passes"]) == (replayed.decision.value, len(replayed.passes)),
        "first_selection_correct": example.first_correct,
        "last_selection_correct": example.correct,
    }


def _ask_with_openai(url: str, task: str, question: str) -> dict[str, Any]:
    from openai import OpenAI

    client = OpenAI(base_url=f"{url}/v1", api_key="not-needed")
    reply = client.chat.completions.create(model=f"raydebm/{task}", messages=[{"role": "user", "content": question}])
    return dict(reply.model_dump())


def _post(address: str, body: Mapping[str, Any]) -> dict[str, Any]:
    request = urllib.request.Request(
        address, data=json.dumps(body).encode(), headers={"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=120) as reply:
        return dict(json.load(reply))


def _show_chat(reply: Mapping[str, Any], question: str) -> None:
    message = reply["choices"][0]["message"]
    console.print(f"   question  {_clip(question)}")
    if message.get("refusal"):
        console.print(f"   refusal   {message['refusal']}")
    else:
        console.print(f"   answer    {_clip(message['content'], from_end=True)}")
    _show_numbers(reply["raydebm"])


def _show_triage(reply: Mapping[str, Any]) -> None:
    for done in reply["passes"]:
        facts = _numbers({"penalty": done["penalty"], "sigma": done["signal"]}) or ["no answer was selected"]
        console.print(f"   pass {done['pass_index']}    {done['decision']}: {', '.join(facts)}")
        if done["feedback"]:
            console.print(f"   feedback  {_clip(done['feedback'], width=300)}")
    console.print(f"   answer    {reply['answer']}")
    _show_numbers(reply)


_NUMBERS = {
    "energy": "energy",
    "mu": "mean of the adapters",
    "sigma": "spread of the adapters",
    "penalty": "penalty of broken constraints",
}


def _numbers(values: Mapping[str, float | None]) -> list[str]:
    known = {name: value for name, value in values.items() if value is not None}
    return [f"{words} {known[name]:.3f}" for name, words in _NUMBERS.items() if name in known]


def _show_numbers(details: Mapping[str, Any]) -> None:
    passes = details["num_passes"]
    facts = [
        *_numbers({name: details[name] for name in _NUMBERS}),
        f"{passes} pass{'' if passes == 1 else 'es'}",
        f"{details['usage']['completion_tokens']} tokens written",
        f"{details['latency_ms'] / 1000:.1f} s",
    ]
    console.print(f"   decision  {details['decision']}: {details['reason']}")
    console.print(f"   {', '.join(facts)}\n")


def _clip(text: str, *, width: int = 150, from_end: bool = False) -> str:
    flat = " ".join(text.split())
    if len(flat) <= width:
        return flat
    return f"… {flat[-width:]}" if from_end else f"{flat[:width]} …"


def _next_steps(run_dir: str) -> str:
    return (
        "Three things to do next:\n"
        f"  1. Read the report, with every number and figure:     open {run_dir}/evaluation/report.html\n"
        f"  2. Ask the service yourself, until Ctrl-C:            raydebm serve --run-dir {run_dir}\n"
        "  3. Write a task of your own, with a recipe to run it: raydebm task new my_task"
    )
