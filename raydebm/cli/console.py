"""Terminal output shared by several commands."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from raydebm.errors import RaydebmError

if TYPE_CHECKING:
    from raydebm.evaluation.report.document import Table as ReportTable
    from raydebm.evaluation.results.evaluation import Evaluation
    from raydebm.pipeline.runner import Pipeline


def _console(*, stderr: bool = False, width: int | None = None) -> Console:
    """A console without rich's markup. Names, reasons and addresses contain brackets, which rich would drop or fail on;
    styled text is a ``rich.text.Text``."""
    return Console(stderr=stderr, width=width, highlight=False, markup=False, emoji=False)


console = _console()
if not console.is_terminal:
    console = _console(width=140)  # logs and pipes do not have a width; 80 would break the tables


def say(line: str) -> None:
    """Print one line of text without wrapping."""
    console.print(line, soft_wrap=True)


def show_error(error: RaydebmError) -> None:
    words = Text.assemble(("error", "bold red"), f" ({type(error).__name__}): {error}")
    _console(stderr=True).print(words, soft_wrap=True)


def show_guarantee(fit: dict[str, Any] | None) -> None:
    """Print the certified guarantee, or the reason for its absence."""
    if fit is None:
        console.print("The paper's rule decides; no posterior was fitted, so nothing is guaranteed.")
        return
    table = Table(title="Possible guarantees", title_justify="left")
    for header in ("error at most", "certified", "threshold", "coverage", "upper bound", "problems", "more problems"):
        table.add_column(header, justify="right")
    asked = [] if fit["guarantee"] is None else [fit["guarantee"]]
    errors = [row["max_error"] for row in asked]
    for row in [*asked, *(row for row in fit["promises"] if row["max_error"] not in errors)]:
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
        console.print(_guarantee_sentence(row), soft_wrap=True)
    if (of_fields := fit.get("field_guarantee")) is not None:
        console.print(_field_sentence(of_fields, fit["fields"]), soft_wrap=True)
    elif not asked:
        console.print("No guarantee was asked for (decision.max_error, or --max-error), so none holds.", soft_wrap=True)


def _guarantee_sentence(row: Mapping[str, Any]) -> str:
    error = "error (share of wrong answers, or mean violation)"
    if row["certified"]:
        return (
            f"With confidence {row['confidence']:g}, the {error} of the returned answers is at most "
            f"{row['max_error']:.1%}, at {row['coverage']:.0%} of the problems answered; a service takes this policy "
            "when it starts again."
        )
    best = "no error at all" if row["smallest_error"] is None else f"an error of {row['smallest_error']:.1%} at best"
    return (
        f"Not certified: an {error} of at most {row['max_error']:.1%}. These {row['problems']} problems certify "
        f"{best}; answering all of them has an error of {row['base_error']:.1%}, so no rule could answer more than "
        f"{row['max_coverage']:.0%}."
    )


def _field_sentence(row: Mapping[str, Any], fields: Mapping[str, Any]) -> str:
    guarantee = f"at most {row['max_error']:.1%} of the fields that are not flagged are wrong"
    if not row["certified"]:
        best = "no error at all" if row["smallest_error"] is None else f"{row['smallest_error']:.1%} at best"
        return f"Not certified: {guarantee}. The fields of these {row['problems']} problems certify {best}."
    shown = [sure >= row["tau"] for sure in fields["confidence"]]
    return (
        f"With confidence {row['confidence']:g}, {guarantee}; {sum(shown) / len(shown):.0%} of {len(shown)} fields are "
        f"not (tau_field {row['tau']:.3g})."
    )


def show_evaluation(pipeline: "Pipeline") -> None:
    """Evaluate a run; print the main selectors, the report's opening and its address."""
    from raydebm.evaluation.report.evaluation_tables import facts, lead, main_table, sentences

    result = pipeline.evaluate()
    show_table(main_table(result))
    has_exact = any(constraint.exactness is not None for constraint in pipeline.task.constraints)
    console.print(Text(lead(result), style="bold"))
    for name, value in facts(result):
        console.print(f"{name}: {value}")
    for sentence in (*sentences(result), *(_why_proofs_help(result) if has_exact else ())):
        console.print(sentence)
    say(f"Report: {pipeline.run.uri('evaluation', 'report.html')}")


def _why_proofs_help(result: "Evaluation") -> tuple[str, ...]:
    """At most one sentence: why a profile is right more often than the vote of the same candidates."""
    from raydebm.evaluation.certainty.confidence import CHOSEN
    from raydebm.evaluation.results.entries import VOTE

    chosen, vote = (None if (row := result.row(name)) is None else row.pass_at_1.value for name in (CHOSEN, VOTE))
    if result.decision is None or chosen is None or vote is None or chosen <= vote:
        return ()
    return (
        f"The profile ({result.decision.profile}) is right on {chosen:.0%} and {VOTE!r} on {vote:.0%}, because this "
        "task has an exact constraint that proves answers right or wrong: it decides first, and the profile chooses "
        "among the answers that are left.",
    )


def show_table(rows: "ReportTable") -> None:
    table = Table(title=rows.title, title_justify="left")
    for index, header in enumerate(rows.headers):
        table.add_column(header, justify="left" if index == 0 else "right", no_wrap=True)
    for number, row in enumerate(rows.rows):
        table.add_row(*row, style="bold" if number in rows.emphasised else None)
    console.print(table)
    console.print(rows.caption)
