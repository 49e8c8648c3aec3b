"""A pipeline for the command line: in a Ray session, with progress bars and one line per stage."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.text import Text

from raydebm.cli.console import console

if TYPE_CHECKING:
    from raydebm.config import Recipe
    from raydebm.pipeline.context import Facts
    from raydebm.pipeline.runner import Pipeline, StageReport


@contextmanager
def pipeline_for(
    recipe: "Recipe", *, own_candidates: bool = True, judges: bool = False, retry_failed: bool = False
) -> Iterator["Pipeline"]:
    """A pipeline in a Ray session, with progress bars and one printed line per stage. Keys of its generators (if it
    samples ``own_candidates``) and ``judges`` are checked first. ``retry_failed`` sends failed requests again."""
    from raydebm.tasks import task_of

    task_of(recipe.task)  # a wrong name is found before Ray, whose import takes seconds

    from raydebm.pipeline.ray.session import ray_session
    from raydebm.pipeline.runner import Pipeline

    with ProgressBars() as bars:

        def on_stage(report: "StageReport") -> None:
            if report.facts:  # a stage that has nothing to do for this recipe has none
                bars.print(_describe(report))

        pipeline = Pipeline(recipe=recipe, progress=bars, on_stage=on_stage)
        if retry_failed:
            pipeline.forget_failed()
        if own_candidates:
            pipeline.check_keys(judges=judges)
        with ray_session() as logs:
            if logs is not None:
                bars.print(f"Ray logs to {logs}")
            yield pipeline


class ProgressBars:
    """Progress bars on a terminal; occasional lines if the output is a file."""

    def __init__(self) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self._bars = Progress(
            TextColumn("{task.description:<22}"),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("left"),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )

    def __enter__(self) -> "ProgressBars":
        self._bars.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._bars.stop()

    def print(self, text: str | Text) -> None:
        """Print one line, cut at the terminal's width."""
        self._bars.console.print(text, no_wrap=True, overflow="ellipsis")

    def __call__(self, stage: str) -> Callable[[int, int], None]:
        bar = self._bars.add_task(stage, total=None)
        shown = 0

        def update(done: int, total: int) -> None:
            nonlocal shown
            self._bars.update(bar, completed=done, total=total, visible=done < total)
            if not console.is_terminal and total and done * 4 // total > shown:
                shown = done * 4 // total
                self.print(f"  {stage}: {done}/{total}")

        return update


_MAX_TEXT = 80
"""Maximum length of an error or a reason in characters. The manifest and the rows have the whole text."""
_COUNTS = {
    "problems": {
        "train": "for training",
        "test": "for testing",
        "not_recorded": "left out, because no recorded pool answers them",
    },
    "candidates": {
        "num_ok": "answers",
        "num_reused": "of them from earlier runs",
        "num_failed": "requests failed",
        "completion_tokens": "tokens written",
    },
    "labels": {"correct": "correct", "incorrect": "incorrect", "unlabeled": "without a label"},
    "energies": {"candidates": "candidates scored", "truncated": "cut to the context", "failed": "without an energy"},
    "scores": {"scored": "scores", "failed": "answers without a score"},
    "baselines": {"scored": "scores", "failed": "answers without a score"},
    "passes": {"passes": "later passes", "failed": "requests failed"},
    "evaluation": {"num_problems": "test problems"},
}
"""Nouns of the numbers in the line of a stage, by name of the fact. Numbers that are 0 are left out."""


def _describe(report: "StageReport") -> Text:
    """One line about a finished stage."""
    how = "reused" if report.reused else f"{report.seconds:.1f} s"
    parts = ", ".join(_in_words(report.stage.split()[-1], report.facts))
    return Text.assemble((f"{report.stage:<12}", "bold"), f" {how:>8}  {parts}")


def _in_words(stage: str, facts: "Facts") -> Iterator[str]:
    """Parts of a stage's line from the facts of its manifest."""
    for name, noun in _COUNTS.get(stage, {}).items():
        if facts.get(name):
            yield f"{facts[name]:,} {noun}"
    for reason in list(facts.get("reasons") or facts.get("errors") or ())[:1]:
        text = reason if isinstance(reason, str) else reason[0]
        yield f"most often: {text if len(text) <= _MAX_TEXT else f'{text[: _MAX_TEXT - 1]}…'}"
    if facts.get("usd"):
        yield f"${facts['usd']:.2f}"
    if stage == "pairs":
        for split in ("train", "validation"):
            if made := facts.get(split):
                yield f"{made['pairs']:,} for {split}, from {made['problems']} of {made['of']} problems"
    if stage == "scorer" and (adapters := facts.get("adapters")):
        yield f"{len(adapters)} adapters trained: {', '.join(adapters)}"
    if stage == "calibration":
        yield from _calibration_in_words(facts.get("decision", {}))
        if "theta_sigma" in facts:
            yield f"paper's rule: sigma up to {facts['theta_sigma']:.3g}"


def _calibration_in_words(fit: "Facts") -> Iterator[str]:
    if "profile" in fit:
        certified = {None: "no guarantee", True: "guarantee certified", False: "guarantee not certified"}
        yield f"profile {fit['profile']}"
        yield f"accept from probability {fit['tau_accept']:.3g}, refuse below {fit['tau_answer']:.3g}"
        yield certified[fit["certified"]]
    elif "reason" in fit:
        yield f"no posterior: {fit['reason']}"
