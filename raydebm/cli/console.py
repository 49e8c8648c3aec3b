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
    """A console without rich's markup, which would drop or reject the brackets in names, reasons and addresses. Styled
    text is a ``rich.text.Text``."""
    return Console(stderr=stderr, width=width, highlight=False, markup=False, emoji=False)


console = _console()
if not console.is_terminal:
    console = _console(width=140)  # files and pipes have no width, and rich's default of 80 would break the tables


def say(line: str | Text) -> None:
    """Print one line of text without wrapping."""
    console.print(line, soft_wrap=True)


def show_error(error: RaydebmError) -> None:
    words = Text.assemble(("error", "bold red"), f" ({type(error).__name__}): {error}")
    _console(stderr=True).print(words, soft_wrap=True)


def show_guarantee(fit: dict[str, Any] | None) -> None:
    """Print the possible guarantees, and in words whether the requested ones are certified."""
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
        say(_guarantee_sentence(row))
    if (of_fields := fit.get("field_guarantee")) is not None:
        say(_field_sentence(of_fields, fit["fields"]))
    elif not asked:
        say("No guarantee was asked for (decision.max_error, or --max-error), so none holds.")


def _guarantee_sentence(row: Mapping[str, Any]) -> str:
    error = "error (share of wrong answers, or mean violation)"
    if row["certified"]:
        return (
            f"With confidence {row['confidence']:g}, the {error} of the returned answers is at most "
            f"{row['max_error']:.1%}, with {row['coverage']:.0%} of the problems answered; a service reads this policy "
            "when it starts."
        )
    return (
        f"Not certified: an {error} of at most {row['max_error']:.1%}. {_smallest_error(row)}; answering all of them "
        f"has an error of {row['base_error']:.1%}, so no rule could answer more than {row['max_coverage']:.0%}."
    )


def _field_sentence(row: Mapping[str, Any], fields: Mapping[str, Any]) -> str:
    guarantee = f"at most {row['max_error']:.1%} of the fields that are not flagged are wrong"
    if not row["certified"]:
        return f"Not certified: {guarantee}. {_smallest_error(row)}."
    shown = [sure >= row["tau"] for sure in fields["confidence"]]
    return (
        f"With confidence {row['confidence']:g}, {guarantee}; {1 - sum(shown) / len(shown):.0%} of {len(shown)} fields "
        f"are flagged (tau_field {row['tau']:.3g})."
    )


def _smallest_error(row: Mapping[str, Any]) -> str:
    smallest, number = row["smallest_error"], row["problems"]
    if smallest is None:
        return f"These {number} problems cannot certify any error"
    return f"The smallest error that these {number} problems certify is {smallest:.1%}"


def show_evaluation(pipeline: "Pipeline") -> None:
    """Evaluate a run, and print the main selectors, the first sentences of the report, and its address."""
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
    """At most one sentence: the reason why the profile is right more often than the vote."""
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
