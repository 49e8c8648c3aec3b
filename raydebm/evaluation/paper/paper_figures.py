"""Locations of the paper's figures in a report, or the reasons for their absence."""

from collections.abc import Collection, Mapping

from raydebm.evaluation.paper.paper_cells import Context, no_pool
from raydebm.evaluation.paper.published import PublishedFigure, paper
from raydebm.evaluation.report.table_cells import Table
from raydebm.evaluation.studies.transfer import Transfer

_NO_PANEL, _DRAWING = "-", "a drawing of the idea, without data"


def figure_table(context: Context, drawn: Mapping[str, Collection[str]]) -> Table:
    """One row per figure of the paper, one column per benchmark.

    Args:
        context: Measured results.
        drawn: Titles of the figures by title of the chapter (name of the study).
    """
    columns = paper().benchmarks
    return Table(
        title="Figures",
        caption="Which chapter of this report has the figure of the same data, or why none has it; "
        f'"{_NO_PANEL}": the paper\'s figure does not show this task.',
        headers=("figure", "title here", *columns),
        rows=tuple(
            (
                f"{figure.title} ({figure.label})",
                figure.here or _DRAWING,
                *(_place(context, figure, column, drawn) for column in columns),
            )
            for figure in paper().figures
        ),
    )


def _place(context: Context, figure: PublishedFigure, column: str, drawn: Mapping[str, Collection[str]]) -> str:
    if column not in figure.tasks:
        return _NO_PANEL
    study = context.before_repair(column) if figure.before_repair else context.study(column)
    if study is None:
        return no_pool(column).reason
    if any(_is_scored(transfer, column) for transfer in context.transfers if transfer.title == figure.here):
        return "Across pools"
    return study.name if figure.here in drawn.get(study.name, ()) else figure.otherwise


def _is_scored(transfer: Transfer, column: str) -> bool:
    tasks = paper().tasks
    return any(tasks.get(target, target) == tasks[column] for target in transfer.targets)
