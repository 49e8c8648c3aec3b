"""What people see on a terminal: progress bars, one line per stage, the tables of an evaluation."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from raydebm.config import Recipe

if TYPE_CHECKING:
    from raydebm.distributed.stages import Pipeline, StageReport
    from raydebm.evaluation.results import Evaluation

console = Console(highlight=False)
if not console.is_terminal:
    console = Console(highlight=False, width=140)  # a log or a pipe has no width of its own; 80 would break the tables


@contextmanager
def pipeline_for(
    recipe: Recipe, *, own_candidates: bool = True, judges: bool = False, retry_failed: bool = False
) -> Iterator["Pipeline"]:
    """A pipeline inside a Ray session, with progress bars and one printed line per stage.

    Args:
        own_candidates: it draws into its own run directory what is missing there, and needs the keys for that.
        judges: it asks the recipe's judges, too, and needs their keys.
        retry_failed: requests that failed in an earlier run are sent again.
    """
    from raydebm.tasks import task_of
    from raydebm.tracking import check_trackers

    # A wrong name or a missing package or key must not cost the start of a cluster; the first two not even its import.
    task_of(recipe.task)
    check_trackers(recipe.training.report_to)

    from raydebm.distributed.session import ray_session
    from raydebm.distributed.stages import Pipeline

    with ProgressBars() as bars:
        pipeline = Pipeline(recipe=recipe, progress=bars, on_stage=lambda report: bars.print(describe(report)))
        if retry_failed:
            pipeline.forget_failed()
        if own_candidates:
            pipeline.check_keys(judges=judges)
        with ray_session(recipe.ray):
            yield pipeline


class ProgressBars:
    """Progress bars on a terminal; a line now and then where output goes to a file."""

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

    def print(self, text: str) -> None:
        self._bars.console.print(text)

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


_QUIET = {"seconds", "num_unpriced", "startup_seconds", "backbone_mib", "num_incomplete", "within_limit", "num_texts"}
"""Facts that stand in the manifest and would crowd the line."""
_MAX_TEXT = 80


def describe(report: "StageReport") -> str:
    """One line about a finished stage."""
    facts = ", ".join(
        f"{name} {_short(value)}"
        for name, value in report.facts.items()
        if name not in _QUIET and _says_something(value)
    )
    how = "reused" if report.reused else f"{report.seconds:.1f} s"
    return f"[bold]{report.stage:<12}[/bold] {how:>8}  {facts}"


def _says_something(value: Any) -> bool:
    return value is not None and value != 0 and value not in ([], {}, (), "")


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3g}"
    if isinstance(value, dict):
        if all(isinstance(item, dict) for item in value.values()) and len(value) > 2:
            return ", ".join(value)
        return "(" + ", ".join(f"{_clipped(name)} {_short(item)}" for name, item in value.items()) + ")"
    if isinstance(value, list):
        return ", ".join(_short(item) for item in value)
    return _clipped(str(value))


def _clipped(text: str) -> str:
    """Whole texts stand in the manifest, and in the rows."""
    return text if len(text) <= _MAX_TEXT else f"{text[: _MAX_TEXT - 1]}…"


def show_promise(fit: dict[str, Any] | None) -> None:
    """What calibration certified, or why nothing."""
    if fit is None:
        console.print("The paper's rule decides; no posterior was fitted, so nothing is promised.")
        return
    table = Table(title="What may be promised", title_justify="left")
    for header in ("error at most", "certified", "threshold", "coverage", "upper bound", "problems", "more problems"):
        table.add_column(header, justify="right")
    asked = [] if fit["guarantee"] is None else [fit["guarantee"]]
    for row in [*asked, *fit["promises"]]:
        table.add_row(
            f"{row['max_error']:g}",
            "yes" if row["certified"] else "not certified",
            *("-" if row[name] is None else f"{row[name]:.3g}" for name in ("tau", "coverage", "upper_bound")),
            str(row["problems"]),
            "-" if row["more_problems"] is None else f"about {row['more_problems']}",
            style="bold" if row in asked else None,
        )
    console.print(table)
    for row in asked:
        if not row["certified"]:
            console.print(
                f"Not certified: an error of at most {row['max_error']:g}. These {row['problems']} problems certify "
                f"{row['smallest_error'] if row['smallest_error'] is not None else 'nothing'} at best; answering every "
                f"problem errs on {row['base_error']:.3g}, so that no rule could answer more than "
                f"{row['max_coverage']:.3g} of them. Only proven answers are given out."
            )


def show_evaluation(result: "Evaluation", report: str) -> None:
    """The selectors and the loop, from the same rows as the report."""
    from raydebm.evaluation.report import summary
    from raydebm.evaluation.tables import loop_table, selector_table

    for found in (selector_table(result), loop_table(result)):
        table = Table(title=found.title, title_justify="left", caption=found.caption, caption_justify="left")
        for index, header in enumerate(found.headers):
            table.add_column(header, justify="left" if index == 0 else "right")
        for number, row in enumerate(found.rows):
            table.add_row(*row, style="bold" if number in found.emphasised else None)
        if found.rows:
            console.print(table)
    console.print(summary(result), markup=False)
    console.print(f"report: {report}")
