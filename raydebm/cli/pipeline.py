"""A pipeline for the command line: in a Ray session, with progress bars and one line per stage."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.text import Text

from raydebm.cli.console import console

if TYPE_CHECKING:
    from raydebm.config import Recipe
    from raydebm.pipeline.runner import Pipeline, StageReport


@contextmanager
def pipeline_for(
    recipe: "Recipe", *, own_candidates: bool = True, judges: bool = False, retry_failed: bool = False
) -> Iterator["Pipeline"]:
    """A pipeline in a Ray session, with progress bars and one printed line per stage.

    Args:
        own_candidates: sample missing candidates, which requires the generators' keys.
        judges: ask the recipe's judges too, which requires their keys.
        retry_failed: resend requests that failed in an earlier run.
    """
    from raydebm.tasks import task_of
    from raydebm.tracking import check_trackers

    # Find a wrong name or a missing package or key before starting a cluster, and the first two before importing Ray.
    task_of(recipe.task)
    check_trackers(recipe.training.report_to)

    from raydebm.distributed.session import ray_session
    from raydebm.pipeline.runner import Pipeline

    with ProgressBars() as bars:
        pipeline = Pipeline(recipe=recipe, progress=bars, on_stage=lambda report: bars.print(_describe(report)))
        if retry_failed:
            pipeline.forget_failed()
        if own_candidates:
            pipeline.check_keys(judges=judges)
        with ray_session(recipe.ray) as logs:
            if logs is not None:
                bars.print(f"Ray logs to {logs}")
            yield pipeline


class ProgressBars:
    """Progress bars on a terminal; occasional lines if the output is a file."""

    def __init__(self) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        self._bars = Progress(
            TextColumn("{task.description:<22}"),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
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


_QUIET = {
    "seconds",
    "num_unpriced",
    "startup_seconds",
    "backbone_mib",
    "num_incomplete",
    "within_limit",
    "num_texts",
    "files",
}
"""Facts left to the manifest to keep the line short."""
_MAX_TEXT = 80


def _describe(report: "StageReport") -> Text:
    """One line about a finished stage."""
    facts = ", ".join(
        f"{name} {_short(value)}"
        for name, value in report.facts.items()
        if name not in _QUIET and _says_something(value)
    )
    how = "reused" if report.reused else f"{report.seconds:.1f} s"
    return Text.assemble((f"{report.stage:<12}", "bold"), f" {how:>8}  {facts}")


def _says_something(value: Any) -> bool:
    return value is not None and value != 0 and value not in ([], {}, (), "")


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3g}"
    if isinstance(value, dict):
        if all(isinstance(part, dict) for part in value.values()) and len(value) > 2:
            return ", ".join(value)
        return "(" + ", ".join(f"{_clipped(name)} {_short(part)}" for name, part in value.items()) + ")"
    if isinstance(value, list):
        return ", ".join(_short(part) for part in value)
    return _clipped(str(value))


def _clipped(text: str) -> str:
    """Short form of a text; the manifest and the rows have all of it."""
    return text if len(text) <= _MAX_TEXT else f"{text[: _MAX_TEXT - 1]}…"
