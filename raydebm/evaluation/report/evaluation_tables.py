"""An evaluation as tables of text, the same ones for Markdown, HTML and the terminal."""

import math
from collections.abc import Sequence

from raydebm.evaluation.report.decision_tables import decision_tables, rule_in_words
from raydebm.evaluation.report.headline import main_rows
from raydebm.evaluation.report.table_cells import Table, interval, number, percent, points, with_interval
from raydebm.evaluation.report.trust_tables import trust_tables
from raydebm.evaluation.results.entries import ALL_PASSES, ANSWERED, OURS, SelectorRow
from raydebm.evaluation.results.evaluation import Evaluation
from raydebm.evaluation.results.outcomes import WaveSavings
from raydebm.evaluation.results.selector_costs import has_prices
from raydebm.evaluation.results.texts_read import TextsRead
from raydebm.evaluation.stats.intervals import NOTHING
from raydebm.generators.tally import SavedSamples

NOT_RECORDED = "not recorded"


def selector_table(evaluation: Evaluation) -> Table:
    """One row per selector; the main result. Mean violation comes first where the task has one."""
    continuous = evaluation.is_continuous
    headers: tuple[str, ...] = ("pass@1 %", "95 % interval", "gap closed %", "95 % interval", "ours minus it")
    if continuous:
        headers = ("mean violation", "95 % interval", "gap closed %", "95 % interval", "it minus ours", "pass@1 %")
    return Table(
        title="Selectors",
        caption=_VIOLATION_CAPTION if continuous else _CORRECT_CAPTION,
        headers=("selector", *headers, "n", "unlabeled"),
        rows=tuple(
            (row.name, *(_violation_cells(row) if continuous else _correct_cells(row)), str(row.num_unlabeled))
            for row in evaluation.rows
        ),
        emphasised=tuple(index for index, row in enumerate(evaluation.rows) if row.group == "ours"),
    )


_LEFT_OUT = (
    "Unlabeled: problems left out because the choice has no label, or because the selector has nothing there (a judge "
    "without scores, say)."
)
_CORRECT_CAPTION = (
    "Share of problems whose chosen candidate is correct. Gap closed: 0 is random choice, 100 the oracle. Ours minus "
    "it: difference in percentage points on the same problems; an interval without 0 is a difference that resampling "
    f"the problems does not explain. {_LEFT_OUT}"
)
_VIOLATION_CAPTION = (
    "Mean violation score of the chosen candidates, 0 to 1, lower is better. Gap closed, in mean violation: 0 is "
    "random choice, 100 the oracle, which takes the lowest score. It minus ours: difference on the same problems, "
    "above 0 where ours violates less; an interval without 0 is one that resampling the problems does not explain. "
    f"pass@1: share of problems whose choice counts as correct. {_LEFT_OUT}"
)


def _correct_cells(row: SelectorRow) -> tuple[str, ...]:
    return (
        percent(row.pass_at_1),
        interval(row.pass_at_1),
        percent(row.gap_closed),
        interval(row.gap_closed),
        "" if row.name == OURS else points(row.ours_minus),
        str(row.pass_at_1.n),
    )


def _violation_cells(row: SelectorRow) -> tuple[str, ...]:
    mean = row.mean_violation
    return (
        "-" if mean.value is None else f"{mean.value:.3f}",
        interval(mean, scale=1, digits=3),
        percent(row.violation_gap_closed),
        interval(row.violation_gap_closed),
        "" if row.name == OURS else number(row.violation_avoided, signed=True),
        with_interval(row.pass_at_1),
        str(mean.n),
    )


def main_table(evaluation: Evaluation) -> Table:
    """The selectors that a reader compares first, narrow enough for a terminal."""
    continuous = evaluation.is_continuous
    rows = main_rows(evaluation)
    worth = "mean violation [95 %]" if continuous else "pass@1 % [95 %]"
    return Table(
        title=f"{evaluation.title}: selectors on {evaluation.counts.problems} test problems",
        caption="95 % intervals in brackets. Gap closed: 0 is random choice, 100 the oracle.",
        headers=("selector", worth, "gap closed % [95 %]", "n"),
        rows=tuple((row.name, *_main_cells(row, continuous=continuous)) for row in rows),
        emphasised=tuple(index for index, row in enumerate(rows) if row.group in ("ours", "decision")),
    )


def _main_cells(row: SelectorRow, *, continuous: bool) -> tuple[str, str, str]:
    if continuous:
        return number(row.mean_violation), with_interval(row.violation_gap_closed), str(row.mean_violation.n)
    return with_interval(row.pass_at_1), with_interval(row.gap_closed), str(row.pass_at_1.n)


def energy_table(evaluation: Evaluation) -> Table:
    """How each energy orders the candidates of a problem."""
    return Table(
        title="Energies",
        caption=(
            "How each energy orders the candidates of a problem, averaged over problems that tell: pair accuracy over "
            "those with correct and incorrect ones, tau-b over those whose labels (violation scores, where there are "
            "any) differ, the gap over those with an energy of both kinds; n of each. Pair accuracy and tau-b: higher "
            "is better, chance is 50 % and 0. Energy gap: mean energy of incorrect minus that of correct candidates."
        ),
        headers=("energy", "pair accuracy %", "95 % interval", "n", "Kendall tau-b", "n", "energy gap", "n"),
        rows=tuple(
            (
                row.name,
                percent(row.pair_accuracy),
                interval(row.pair_accuracy),
                str(row.pair_accuracy.n),
                number(row.kendall_tau_b),
                str(row.kendall_tau_b.n),
                number(row.energy_gap),
                str(row.energy_gap.n),
            )
            for row in evaluation.energies
        ),
        emphasised=tuple(index for index, row in enumerate(evaluation.energies) if row.name == "E"),
    )


def _theory_table(evaluation: Evaluation) -> Table:
    theory = evaluation.theory
    rows: list[tuple[str, ...]] = []
    if theory is not None:
        rows = [
            ("adapters (K)", str(theory.num_adapters), ""),
            ("pairs", str(theory.num_pairs), ""),
            ("q, one adapter ranks a pair correctly, %", percent(theory.q), interval(theory.q)),
            (
                "rho, correlation of two adapters",
                number(theory.rho).split(" [")[0],
                interval(theory.rho, scale=1, digits=3),
            ),
            ("P(K, q, rho) predicted, %", "-" if theory.predicted is None else f"{100 * theory.predicted:.1f}", ""),
            ("its limit for K to infinity, %", "-" if theory.ceiling is None else f"{100 * theory.ceiling:.1f}", ""),
            ("measured for the ensemble mean, %", percent(theory.measured), interval(theory.measured)),
        ]
    return Table(
        title="Ensemble theory",
        caption=(
            "What correlated adapters can gain by averaging (Gaussian approximation of a majority vote), next to what "
            "was measured. The closer rho is to 1, the less a further adapter adds."
        ),
        headers=("quantity", "value", "95 % interval"),
        rows=tuple(rows),
    )


def loop_table(evaluation: Evaluation) -> Table:
    """What the loop's passes and abstentions change."""
    loop = evaluation.loop
    rows: list[tuple[str, ...]] = []
    if loop is not None:
        last = evaluation.row(ALL_PASSES)
        rows = [
            ("answered, %", percent(loop.coverage), interval(loop.coverage)),
            ("correct among answered, %", percent(loop.answered), interval(loop.answered)),
            ("correct after the first pass, no abstention, %", percent(loop.first), interval(loop.first)),
            *(
                [("correct after all passes, no abstention, %", percent(last.pass_at_1), interval(last.pass_at_1))]
                if last
                else []
            ),
            *_violation_of_answers(evaluation),
            ("a later pass was asked for, %", percent(loop.regenerated), interval(loop.regenerated)),
            ("problems whose last pass drew nothing", str(loop.num_failed_passes), ""),
            ("selections taken from a later pass", str(loop.num_adopted), ""),
            ("turned from incorrect to correct", str(loop.num_fixed), ""),
            ("turned from correct to incorrect", str(loop.num_broken), ""),
            ("abstained, selection incorrect or none", str(loop.num_abstained_incorrect), ""),
            ("abstained, selection correct", str(loop.num_abstained_correct), ""),
            ("answered without a label", str(loop.num_unlabeled), ""),
            *_wave_rows(loop.waves),
        ]
    policy = evaluation.policy
    passes = "One pass" if policy["max_passes"] == 1 else f"Up to {policy['max_passes']} passes"
    return Table(
        title="Triage",
        caption=(
            f"{passes} over {0 if loop is None else loop.num_problems} problems, decided by {rule_in_words(policy)}."
        ),
        headers=("what", "value", "95 % interval"),
        rows=tuple(rows),
    )


def _wave_rows(waves: WaveSavings | None) -> list[tuple[str, ...]]:
    if waves is None:
        return []
    tokens = "-" if waves.token_share is None else f"{100 * waves.token_share:.1f}"
    return [
        ("passes that sampling in waves ended early", f"{waves.num_ended_early} of {waves.num_passes}", ""),
        ("samples that this saved, %", f"{100 * waves.sample_share:.1f}", ""),
        ("tokens that this saved, %", tokens, ""),
    ]


def _violation_of_answers(evaluation: Evaluation) -> list[tuple[str, ...]]:
    answered = evaluation.row(ANSWERED)
    if answered is None or answered.mean_violation.value is None:
        return []
    mean = answered.mean_violation
    return [("mean violation of the answers", f"{mean.value:.3f}", interval(mean, scale=1, digits=3))]


def _difficulty_table(evaluation: Evaluation) -> Table:
    continuous = evaluation.is_continuous
    names = list(dict.fromkeys(name for row in evaluation.difficulties for name in row.pass_at_1))
    what = "Mean violation (lower is better)" if continuous else "pass@1 in %"
    return Table(
        title="By difficulty",
        caption=f"{what} with its 95 % interval, per group of problems.",
        headers=("group", "problems", *names),
        rows=tuple(
            (
                row.difficulty,
                str(row.num_problems),
                *(
                    number(row.mean_violation.get(name, NOTHING)) if continuous else with_interval(row.pass_at_1[name])
                    for name in names
                ),
            )
            for row in evaluation.difficulties
        ),
    )


def _dimension_table(evaluation: Evaluation) -> Table:
    """What the selections violate, part by part."""
    dimensions = evaluation.dimensions
    source = "" if dimensions is None else dimensions.source
    return Table(
        title="Parts of the violation",
        caption=(
            f"Mean of each part over the chosen candidates with its 95 % interval, lower is better; from {source}. A "
            "part that is high for every selector is one that no candidate gets right; a part that only the oracle "
            "keeps low is what the selectors do not see."
        ),
        headers=("part", *(() if dimensions is None else dimensions.selectors)),
        rows=()
        if dimensions is None
        else tuple((name, *(number(estimate) for estimate in values)) for name, values in dimensions.rows),
    )


def cost_table(evaluation: Evaluation) -> Table:
    """What each selector costs per problem, cheapest first; those without a price last."""
    continuous, is_priced = evaluation.is_continuous, has_prices(evaluation.costs)
    rows = sorted(evaluation.costs, key=lambda row: math.inf if row.usd.value is None else row.usd.value)
    return Table(
        title="Cost",
        caption=(
            "Per problem: requests for candidates, scores that were asked for (the ensemble's energies of a candidate "
            "count as one), and US dollars per 1,000 problems "
            "where all prices are known (of candidates as billed, else evaluation.prices). A rule that takes one "
            "candidate pays for one, every other for the whole pool. On the front: no other is as cheap and as good."
            + ("" if is_priced else " No price is known here: cheap is what asks for as few candidates and scores.")
            + ("" if evaluation.saved is None else f" {_saved_in_words(evaluation.saved)}")
        ),
        headers=(
            "selector", "mean violation" if continuous else "pass@1 %", "candidates", "scores", "$ per 1,000", "front",
        ),
        rows=tuple(
            (
                row.name,
                number(row.worth) if continuous else with_interval(row.worth),
                f"{row.num_candidates:.1f}",
                f"{row.num_scores:.1f}",
                "-" if row.usd.value is None else f"{1000 * row.usd.value:,.2f} "
                + interval(row.usd, scale=1000, digits=2),
                "yes" if row.is_on_front else "",
            )
            for row in rows
        ),
        emphasised=tuple(index for index, row in enumerate(rows) if row.is_on_front),
    )  # fmt: skip


def _saved_in_words(saved: SavedSamples) -> str:
    tokens = "an unknown share" if saved.token_share is None else f"about {100 * saved.token_share:.0f} %"
    return (
        f"Sampling in waves ended {saved.num_settled:,} of {saved.num_problems:,} problems early, over all splits: "
        f"{saved.num_samples:,} candidates ({100 * saved.sample_share:.0f} %) were never sampled, which saved {tokens} "
        "of the completion tokens."
    )


def texts_table(rows: Sequence[TextsRead]) -> Table:
    """What the scorer read of its texts, by split; without rows it was not recorded."""

    def share(count: int | None, row: TextsRead) -> str:
        return NOT_RECORDED if count is None else f"{100 * count / row.num_candidates:.1f}"

    return Table(
        title="What the scorer read",
        caption=(
            "Shares in % of the scored candidates of the first pass: nothing of the problem was read, a part of the "
            "problem was read, a part of the answer was read. Texts are cut where problem and answer together are "
            "longer than the scorer's context."
        ),
        headers=("split", "candidates", "no problem", "problem in part", "answer in part"),
        rows=tuple(
            (
                row.split,
                str(row.num_candidates),
                *(share(count, row) for count in (row.without_problem, row.problem_cut, row.answer_cut)),
            )
            for row in rows
        )
        or (("all", "-", NOT_RECORDED, NOT_RECORDED, NOT_RECORDED),),
    )


def tables(evaluation: Evaluation) -> list[Table]:
    """All tables that have rows."""
    all_tables = [
        selector_table(evaluation),
        *decision_tables(evaluation),
        _dimension_table(evaluation),
        loop_table(evaluation),
        *trust_tables(evaluation),
        *([texts_table(evaluation.texts_read)] if evaluation.adapters else []),
        energy_table(evaluation),
        _theory_table(evaluation),
        _difficulty_table(evaluation),
        cost_table(evaluation),
    ]
    return [table for table in all_tables if table.rows]
