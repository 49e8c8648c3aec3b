"""Prints the comparison of two policies."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.table import Table

from raydebm.cli.console import console, say

if TYPE_CHECKING:
    from raydebm.evaluation.stats.intervals import Estimate
    from raydebm.evaluation.studies.policy_pairs import PolicyComparison


def show_comparison(found: "PolicyComparison") -> None:
    """The table of both policies, and what it does not say by itself."""
    table = Table(title=f"{found.num_decisions:,} problems, decided by both policies", title_justify="left")
    for column in ("", f"first {found.first.version}", f"second {found.second.version}", "difference", "p", "p, Holm"):
        table.add_column(column, justify="left" if column == "" else "right")
    for row in comparison_rows(found):
        table.add_row(*row)
    console.print(table)
    for line in comparison_lines(found):
        say(line)


def comparison_rows(found: "PolicyComparison") -> Iterator[tuple[str, ...]]:
    """What is compared, what each has, the difference, p and corrected p."""
    from raydebm.evaluation.stats.significance import p_text

    num_known = found.num_agree + found.num_differ
    shares = (
        ("right answers", found.right, found.num_outcomes),
        ("wrong answers", found.wrong, found.num_outcomes),
        ("answered", found.answered, num_known),
    )
    for name, test, total in shares:
        counts = [getattr(each, name.split()[0]) for each in (found.first, found.second)]
        cells = [f"{count:,} of {total:,}" for count in counts]
        yield name, *cells, _interval(test.difference, "+.1%"), p_text(test.p_value), p_text(test.p_holm)
    for name, estimate, p_value, values in (
        ("candidates", found.candidates, found.candidates_p, (found.first.candidates, found.second.candidates)),
        ("US dollars", found.cost_usd, found.cost_p, (found.first.cost_usd, found.second.cost_usd)),
    ):
        cells = ["-" if value is None else f"{value:.4g}" for value in values]
        yield name, *cells, _interval(estimate, "+.3g"), p_text(p_value), ""


def _interval(estimate: "Estimate", form: str) -> str:
    if estimate.value is None or estimate.low is None or estimate.high is None:
        return "-"
    return f"{estimate.value:{form}} [{estimate.low:{form}}, {estimate.high:{form}}]"


def comparison_lines(found: "PolicyComparison") -> Iterator[str]:
    """Agreement, what the tests rest on, and how many outcomes more are needed, in words."""
    yield (
        f"They agree on {found.num_agree:,} and differ on {found.num_differ:,}; of {found.num_unknown:,} the choice of "
        "the policy that did not answer is not known, because it would have sampled more."
    )
    yield (
        f"{found.num_outcomes:,} outcomes judge both choices, {found.num_unjudged:,} judge one alone. Where they agree "
        "nothing is tested. Right and wrong answers are shares of these outcomes, differences are second minus first."
    )
    if found.num_repeated or found.num_inexact:
        yield (
            f"{found.num_repeated:,} older decisions about the same problems do not count; {found.num_inexact:,} rest "
            "on a pass that answered feedback about another candidate than the other policy would have selected."
        )
    if found.outcomes_needed is None:
        yield "No outcome tells them apart so far, so how many more are needed is not known."
    else:
        yield (
            f"To find a difference of {found.margin:.1%} in right answers with probability 0.8 (p < 0.05), about "
            f"{found.outcomes_needed:,} outcomes more are needed."
        )
