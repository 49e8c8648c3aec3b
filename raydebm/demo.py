"""``raydebm demo``: the main job on embedded models, then the service, asked three questions.

Nothing in it is staged: the problems that are asked were chosen by replaying the test split, and because seeds follow
from the request, the service draws the same candidates again and must come to the same decisions.
"""

import json
import socket
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from raydebm.config import load_recipe
from raydebm.console import console, pipeline_for, show_evaluation
from raydebm.distributed.stages import Pipeline
from raydebm.errors import ConfigError
from raydebm.records import Decision, Outcome, Verdict

PACKAGE = Path(__file__).resolve().parent
RECIPE = PACKAGE / "embedded" / "demo.yaml"
SERVE_CONFIG = PACKAGE.parent / "serve_config.yaml"


def run_demo(*, run_dir: str, port: int) -> None:
    """Run the whole loop, print what happens, and say what to do next.

    Raises:
        ConfigError: the checkout's ``serve_config.yaml`` is not beside the package.
        ResourceError: the port is in use.
    """
    if not SERVE_CONFIG.exists():
        raise ConfigError(f"the demo needs {SERVE_CONFIG}; run it from a clone of the repository")
    from raydebm.serving.app import check_port

    port = port or _free_port()
    check_port("127.0.0.1", port)
    started = time.monotonic()
    recipe = load_recipe(RECIPE, overrides=[f"run_dir={run_dir}"])
    console.rule("raydebm: choose among LLM answers, and know when none can be trusted")
    console.print(
        f"Four small language models answer Knights & Knaves puzzles; five adapters learn which answers to trust.\n"
        f"No key, no GPU, no network. Files: {run_dir}\n"
    )
    with pipeline_for(recipe) as pipeline:
        show_evaluation(pipeline.evaluate(), pipeline.run.uri("evaluation", "report.html"))
        examples = choose_examples(pipeline)
        console.rule("the service")
        from raydebm.serving.launch import deployed

        console.print("starting serve_config.yaml …")
        with deployed(SERVE_CONFIG, port=port, args={"run_dir": str(Path(run_dir).resolve())}) as url:
            console.print(f"listening on {url}\n")
            ask_all(url, recipe.task.name, examples)
    minutes = (time.monotonic() - started) / 60
    console.rule(f"done in {minutes:.1f} minutes")
    console.print(_next_steps(run_dir))


def choose_examples(pipeline: Pipeline) -> dict[str, Outcome]:
    """One test problem per kind of decision, from the replayed test split; kinds that do not occur are left out."""
    golds = {row.candidate_id: row for row in _labels(pipeline)}

    def is_right(candidate_id: str | None) -> bool:
        found = golds.get(candidate_id or "")
        return found is not None and found.verdict is Verdict.CORRECT

    examples: dict[str, Outcome] = {}
    for outcome in pipeline.outcomes():
        first = outcome.passes[0]
        if outcome.decision is Decision.ABSTAIN:
            examples.setdefault("abstain", outcome)
        elif len(outcome.passes) == 1:
            if is_right(first.selected):
                examples.setdefault("accept", outcome)
        elif not is_right(first.selected) and is_right(outcome.passes[-1].selected):
            examples.setdefault("regenerate", outcome)
    return {kind: examples[kind] for kind in ("accept", "regenerate", "abstain") if kind in examples}


def _labels(pipeline: Pipeline) -> Sequence[Any]:
    from raydebm.distributed.stages import TEST

    return list(pipeline.recorded(TEST).labels.values())


def ask_all(url: str, task: str, examples: dict[str, Outcome]) -> None:
    if "accept" in examples:
        console.print("[bold]1. accept[/bold]: POST /v1/chat/completions with the official openai client")
        show_chat(ask_with_openai(url, task, examples["accept"].problem.prompt), examples["accept"])
    if "regenerate" in examples:
        console.print("[bold]2. regenerate[/bold]: POST /v1/triage over plain HTTP")
        show_triage(ask_over_http(url, task, examples["regenerate"].problem.prompt))
    if "abstain" in examples:
        console.print("[bold]3. abstain[/bold]: the same openai client, with the answer refused")
        show_chat(ask_with_openai(url, task, examples["abstain"].problem.prompt), examples["abstain"])
    for kind in ("accept", "regenerate", "abstain"):
        if kind not in examples:
            console.print(f"[yellow]no test problem of this run ended in: {kind}[/yellow]")


def ask_with_openai(url: str, task: str, question: str) -> dict[str, Any]:
    from openai import OpenAI

    client = OpenAI(base_url=f"{url}/v1", api_key="not-needed")
    reply = client.chat.completions.create(model=f"raydebm/{task}", messages=[{"role": "user", "content": question}])
    found: dict[str, Any] = reply.model_dump()
    return found


def ask_over_http(url: str, task: str, question: str) -> dict[str, Any]:
    request = urllib.request.Request(
        f"{url}/v1/triage",
        data=json.dumps({"task": task, "problem": question}).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=120) as reply:
        found: dict[str, Any] = json.load(reply)
    return found


def show_chat(reply: dict[str, Any], expected: Outcome) -> None:
    message, details = reply["choices"][0]["message"], reply["raydebm"]
    console.print(f"   question  {_clip(expected.problem.prompt)}", markup=False)
    if message.get("refusal"):
        console.print(f"   refusal   {message['refusal']}", markup=False)
    else:
        console.print(f"   answer    {_clip(message['content'], from_end=True)}", markup=False)
    _show_numbers(details)


def show_triage(reply: dict[str, Any]) -> None:
    for done in reply["passes"]:
        signal = "none" if done["signal"] is None else f"{done['signal']:.3f}"
        penalty = "none" if done["penalty"] is None else f"{done['penalty']:.3f}"
        console.print(
            f"   pass {done['pass_index']}    {done['decision']}: E_constraint {penalty}, sigma {signal}", markup=False
        )
        if done["feedback"]:
            console.print(f"   feedback  {_clip(done['feedback'], width=300)}", markup=False)
    console.print(f"   answer    {reply['answer']}", markup=False)
    _show_numbers(reply)


def _show_numbers(details: dict[str, Any]) -> None:
    numbers = ", ".join(
        f"{name} {details[name]:.3f}" for name in ("energy", "mu", "sigma", "penalty") if details[name] is not None
    )
    console.print(f"   decision  {details['decision']}: {details['reason']}", markup=False)
    console.print(
        f"   {numbers}; {details['num_passes']} pass(es), {details['usage']['completion_tokens']} tokens written, "
        f"{details['latency_ms'] / 1000:.1f} s\n",
        markup=False,
    )


def _clip(text: str, *, width: int = 150, from_end: bool = False) -> str:
    flat = " ".join(text.split())
    if len(flat) <= width:
        return flat
    return f"… {flat[-width:]}" if from_end else f"{flat[:width]} …"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _next_steps(run_dir: str) -> str:
    return (
        "What to do next:\n"
        f"  open {run_dir}/evaluation/report.html\n"
        "  raydebm serve --run-dir runs/demo          the service again, until Ctrl-C\n"
        "  serve run serve_config.yaml                the same, as a Ray Serve application\n"
        "  export OPENROUTER_API_KEY=…                the paper's four generators:\n"
        "  raydebm run --config configs/paper.yaml --dry-run"
    )
