"""Prints the comparison of two policies."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.table import Table

from raydebm.cli.console import console, say

if TYPE_CHECKING:
    from raydebm.evaluation.stats.intervals import Estimate
    from raydebm.evaluation.studies.policy_pairs import PolicyComparison


def show_comparison(comparison: "PolicyComparison") -> None:
    """The table of both policies, and what it does not say by itself."""
    table = Table(title=f"{comparison.num_decisions:,} problems, decided by both policies", title_justify="left")
    for column in (
        "",
        f"first {comparison.first.version}",
        f"second {comparison.second.version}",
        "difference",
        "p",
        "p, Holm",
    ):
        table.add_column(column, justify="left" if column == "" else "right")
    for row in comparison_rows(comparison):
        table.add_row(*row)
    console.print(table)
    for line in comparison_lines(comparison):
        say(line)


def comparison_rows(comparison: "PolicyComparison") -> Iterator[tuple[str, ...]]:
    """What is compared, what each has, the difference, p and corrected p."""
    from raydebm.evaluation.stats.significance import p_text

    num_known = comparison.num_agree + comparison.num_differ
    shares = (
        ("right answers", comparison.right, comparison.num_outcomes),
        ("wrong answers", comparison.wrong, comparison.num_outcomes),
        ("answered", comparison.answered, num_known),
    )
    for name, test, total in shares:
        counts = [getattr(each, name.split()[0]) for each in (comparison.first, comparison.second)]
        cells = [f"{count:,} of {total:,}" for count in counts]
        yield name, *cells, _interval(test.difference, "+.1%"), p_text(test.p_value), p_text(test.p_holm)
    for name, estimate, p_value, values in (
        (
            "candidates",
            comparison.candidates,
            comparison.candidates_p,
            (comparison.first.candidates, comparison.second.candidates),
        ),
        ("US dollars", comparison.cost_usd, comparison.cost_p, (comparison.first.cost_usd, comparison.second.cost_usd)),
    ):
        cells = ["-" if value is None else f"{value:.4g}" for value in values]
        yield name, *cells, _interval(estimate, "+.3g"), p_text(p_value), ""


def _interval(estimate: "Estimate", form: str) -> str:
    if estimate.value is None or estimate.low is None or estimate.high is None:
        return "-"
    return f"{estimate.value:{form}} [{estimate.low:{form}}, {estimate.high:{form}}]"


def comparison_lines(comparison: "PolicyComparison") -> Iterator[str]:
    """Agreement, what the tests rest on, and how many outcomes more are needed, in words."""
    yield (
        f"They agree on {comparison.num_agree:,} and differ on {comparison.num_differ:,}; of "
        f"{comparison.num_unknown:,} the choice of the policy that did not answer is not known, because it would have "
        "sampled more."
    )
    yield (
        f"{comparison.num_outcomes:,} outcomes judge both choices, {comparison.num_unjudged:,} judge one alone. Where "
        "they agree nothing is tested. Right and wrong answers are shares of these outcomes, differences are second "
        "minus first."
    )
    if comparison.num_repeated or comparison.num_inexact:
        yield (
            f"{comparison.num_repeated:,} older decisions about the same problems do not count; "
            f"{comparison.num_inexact:,} rest on a pass that answered feedback about another candidate than the other "
            "policy would have selected."
        )
    if comparison.outcomes_needed is None:
        yield "No outcome tells them apart so far, so how many more are needed is not known."
    else:
        yield (
            f"To find a difference of {comparison.margin:.1%} in right answers with probability 0.8 (p < 0.05), about "
            f"{comparison.outcomes_needed:,} outcomes more are needed."
        )
