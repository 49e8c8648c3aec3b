"""The studies as tables of text."""

from raydebm.decision.calibration.grid import GridRow
from raydebm.evaluation.report.table_cells import Table, number, percent, points, with_interval
from raydebm.evaluation.results.entries import OURS
from raydebm.evaluation.studies.study import StudyResults


def _plain(value: float | None, digits: int = 0) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"


def _overview_table(results: StudyResults) -> Table:
    overview = results.overview
    rows = [
        ("problems", str(overview.num_problems)),
        ("candidates", f"{overview.num_candidates:,}"),
        (
            "candidates per problem",
            str(overview.most) if overview.fewest == overview.most else f"{overview.fewest} to {overview.most}",
        ),
        ("generators", str(len(overview.generators))),
        ("candidates correct, %", with_interval(overview.accuracy)),
        *([("mean violation of candidates", number(overview.mean_violation))] if overview.mean_violation.n else []),
        ("problems with a correct candidate, %", with_interval(overview.solvable)),
        ("problems with correct and incorrect ones, %", with_interval(overview.mixed)),
        ("failed to generate", str(overview.num_failed)),
        ("did not parse", str(overview.num_unparsed)),
        ("could not be scored", str(overview.num_unscored)),
        ("without a label", str(overview.num_unlabeled)),
        ("mean characters of a problem", _plain(overview.prompt_characters)),
        ("mean characters of a candidate", _plain(overview.text_characters)),
        *((f"candidates that break the constraint {name}", str(count)) for name, count in overview.constraints.items()),
        *((f"problems of group {name or '(none)'}", str(count)) for name, count in overview.difficulties.items()),
    ]
    return Table(
        title="The pool",
        caption="What was evaluated. Only problems with correct and incorrect candidates can be chosen well or badly.",
        headers=("what", "value"),
        rows=tuple(rows),
    )


def _generator_table(results: StudyResults) -> Table:
    continuous = results.evaluation.is_continuous
    rows = []
    for row in results.generators:
        lengths = f"{_plain(row.characters_correct)} / {_plain(row.characters_incorrect)}"
        rows.append(
            (
                row.name,
                str(row.num_candidates),
                str(row.num_failed),
                with_interval(row.accuracy),
                *([number(row.mean_violation)] if continuous else []),
                str(row.num_unparsed),
                lengths,
                _plain(row.completion_tokens),
                "-" if row.truncated_frac is None else f"{100 * row.truncated_frac:.1f}",
                percent(row.picked),
                "-" if row.share_of_correct is None else f"{100 * row.share_of_correct:.1f}",
                number(row.mu_correct, digits=2),
                with_interval(row.pair_accuracy),
            )
        )
    spread = number(results.energy_spread, digits=2)
    return Table(
        title="Generators",
        caption=(
            "Accuracy: mean over problems of the share correct. Failed: requests without an answer, in no figure. "
            "Picked: share of the selections that this generator wrote, next to its share of a problem's correct "
            "candidates, both over the problems that have one; if they differ much, the scorer may know authors rather "
            "than answers. Own pairs: pairs of two candidates of this generator that mu ranks right. "
            f"Standard deviation over generators of the mean mu of correct candidates: {spread}."
        ),
        headers=(
            "generator", "candidates", "failed", "correct %", *(["mean violation"] if continuous else []),
            "unparsed", "characters, correct / incorrect", "tokens",
            "cut off %", "picked %", "of the correct %", "mu of correct", "own pairs ranked right %",
        ),
        rows=tuple(rows),
    )  # fmt: skip


def _ensemble_table(results: StudyResults) -> Table:
    continuous = results.evaluation.is_continuous
    return Table(
        title="Ensemble size (K)",
        caption=(
            "Means over all subsets of K adapters (a random 40 where there are more), selection by E (mu of the subset "
            "plus the constraint term) and by mu alone; worst and best: of single subsets, by E. P(K, q, rho): what "
            "the theory predicts for pairs."
        ),
        headers=(
            "K",
            "subsets",
            "pass@1 % by E",
            "by mu",
            "worst - best %",
            "pairs ranked right %",
            "P(K, q, rho) %",
            "sigma-AUROC % by E",
            "by mu",
            *(["mean violation by E", "by mu"] if continuous else []),
        ),
        rows=tuple(
            (
                str(row.num_adapters),
                f"{row.num_subsets} of {row.num_possible}",
                with_interval(row.pass_at_1),
                with_interval(row.mu_pass_at_1),
                "-" if row.worst is None or row.best is None else f"{100 * row.worst:.1f} - {100 * row.best:.1f}",
                with_interval(row.pair_accuracy),
                "-" if row.predicted_pair_accuracy is None else f"{100 * row.predicted_pair_accuracy:.1f}",
                with_interval(row.sigma_auroc),
                with_interval(row.mu_sigma_auroc),
                *([number(row.mean_violation), number(row.mu_mean_violation)] if continuous else []),
            )
            for row in results.ensemble_sizes
        ),
    )


def _pool_size_table(results: StudyResults) -> Table:
    names = list(results.pool_sizes[-1].pass_at_1) if results.pool_sizes else []
    violated = list(results.pool_sizes[-1].violation) if results.pool_sizes else []
    return Table(
        title="Candidates per problem (N)",
        caption=(
            "pass@1 in % when only n random candidates of each pool are there: the exact expectation over all subsets "
            "for ours, random and oracle, the mean of 32 seeded subsets for votes. Smaller pools are used whole."
            + (" Last columns: mean violation, lower is better." if violated else "")
        ),
        headers=("n", *names, *(f"violation, {name}" for name in violated)),
        rows=tuple(
            (
                str(row.n),
                *(with_interval(row.pass_at_1[name]) for name in names),
                *(number(row.violation[name]) for name in violated),
            )
            for row in results.pool_sizes
        ),
    )


def _pool_kind_table(results: StudyResults) -> Table:
    return Table(
        title="One generator or several",
        caption=(
            "pass@1 in % on pools of one generator, and on random mixed pools; the same scorer for all, trained on the "
            "mixed pool. A generator's row is about the problems that it answered; on the same problems are the last "
            "columns: ours on as many random candidates of all generators, and what the whole pool adds to this one. "
            "Ours is selection by E."
        ),
        headers=(
            "pool", "candidates", "problems", "random", "majority vote", "ours", "mu only", "oracle",
            "ours, mixed of this size", "whole pool minus this", "the same by mu",
        ),
        rows=tuple(
            (
                row.name,
                str(row.n),
                str(row.oracle.n),
                *(
                    with_interval(estimate)
                    for estimate in (row.random, row.majority, row.ours, row.mu_only, row.oracle)
                ),
                with_interval(row.same_size),
                points(row.whole_minus),
                points(row.mu_whole_minus),
            )
            for row in results.pool_kinds
        ),
    )  # fmt: skip


def _lambda_table(results: StudyResults) -> Table:
    decomposition = results.decomposition
    text = (
        "E_constraint tells no two parsed candidates of a problem apart here, so lambda changes nothing."
        if decomposition is None
        else f"On {decomposition.num_constrained} problems E_constraint tells candidates apart. mu's pick is among "
        f"those of lowest E_constraint on {with_interval(decomposition.agree)} % of all problems (the only such one on "
        f"{with_interval(decomposition.agree_alone)} %); the pick of E is neither term's on "
        f"{with_interval(decomposition.neither)} %."
    )
    chosen = results.evaluation.policy["lambda"]
    return Table(
        title="Lambda and the two terms",
        caption=f"Selection by mu + lambda E_constraint. {text}",
        headers=("lambda", "pass@1 %", "mean violation"),
        rows=tuple(
            (f"{row.lambda_:g}", with_interval(row.pass_at_1), number(row.mean_violation)) for row in results.lambdas
        )
        if decomposition is not None
        else (),
        emphasised=tuple(index for index, row in enumerate(results.lambdas) if row.lambda_ == chosen),
    )


def _variance_table(results: StudyResults) -> Table:
    """The partition of sigma squared; without rows where nothing was partitioned."""
    partition = results.variance
    return Table(
        title="Partitioned variance",
        caption=(
            "Where sigma squared comes from, on candidates of problems whose E_constraint tells candidates apart. The "
            "analytic term adds nothing to it (first row, rounding only). Each adapter's energy is split within "
            "problems into what moves with E_constraint and the rest: a share above 0 of the former is uncertainty "
            "about constraints that sigma holds nevertheless, because the adapters learnt from labels that depend on "
            "them. Shares in % of sigma squared; they add up to 100."
        ),
        headers=("what", "value"),
        rows=()
        if partition is None
        else (
            ("largest difference of sigma with and without the analytic term", f"{partition.identity_error:.1e}"),
            ("problems / candidates", f"{partition.num_problems} / {partition.num_candidates:,}"),
            ("mean sigma squared", number(partition.variance, digits=4)),
            ("variance of what does not move with E_constraint", with_interval(partition.quality)),
            ("variance of what does", with_interval(partition.constraint)),
            ("twice their covariance", with_interval(partition.covariance)),
            ("energy per unit of E_constraint, by adapter", ", ".join(f"{slope:.2f}" for slope in partition.slopes)),
        ),
    )


def _threshold_table(results: StudyResults) -> Table:
    return Table(
        title="Thresholds",
        caption=(
            "What each value would do on one pass: as theta_sigma (share sent to another pass, accuracy of those "
            "accepted at once) and as theta_abstain (share left unanswered, accuracy of the rest); all in %."
        ),
        headers=("theta", "which", "sent on", "accepted: correct", "abstained", "answered: correct"),
        rows=tuple(
            (
                f"{row.theta:.3g}",
                row.where,
                percent(row.triage_rate),
                with_interval(row.accepted),
                percent(row.abstain_frac),
                with_interval(row.answered),
            )
            for row in results.thresholds
        ),
    )


def _grid_table(results: StudyResults) -> Table:
    """The best rows of calibration's grid: most accurate first, or those that violate least."""
    continuous = any(row.mean_violation is not None for row in results.grid)

    def rank(row: GridRow) -> tuple[float, float, float]:
        loss = -(row.pass_at_1 or 0.0) if row.mean_violation is None else row.mean_violation
        return (loss, row.abstain_frac, row.regenerate_frac)

    best = sorted(results.grid, key=rank)[:10]
    return Table(
        title="Grid of thresholds",
        caption=(
            f"The ten {'of lowest mean violation' if continuous else 'most accurate'} of {len(results.grid)} pairs of "
            "thresholds on validation problems at the lambda in use, all passes included; all shares in %. Lift: over "
            "one pass without abstaining, in points."
        ),
        headers=(
            "theta_sigma",
            "theta_abstain",
            "answered: correct",
            "lift",
            "n",
            "abstained",
            "sent on",
            *(["mean violation"] if continuous else []),
        ),
        rows=tuple(
            (
                f"{row.theta_sigma:g}",
                f"{row.theta_abstain:g}",
                "-" if row.pass_at_1 is None else f"{100 * row.pass_at_1:.1f}",
                "-" if row.lift is None else f"{100 * row.lift:+.1f}",
                str(row.num_answered),
                f"{100 * row.abstain_frac:.1f}",
                f"{100 * row.regenerate_frac:.1f}",
                *([_plain(row.mean_violation, 3)] if continuous else []),
            )
            for row in best
        ),
    )


def _two_pass_table(results: StudyResults) -> Table:
    """The row of the paper's two-pass table; empty where the loop was not run with more than one pass."""
    evaluation = results.evaluation
    loop, first, last = evaluation.loop, evaluation.row(OURS), evaluation.row("ours, all passes")
    rows: list[tuple[str, ...]] = []
    if loop is not None and first is not None and last is not None:
        delta = next((row.difference for row in evaluation.comparisons if row.one == "ours, all passes"), None)
        sent = round((loop.regenerated.value or 0) * loop.num_problems)
        rows = [
            (
                results.name,
                f"{sent}/{loop.num_problems} ({percent(loop.regenerated)})",
                with_interval(first.pass_at_1),
                with_interval(last.pass_at_1),
                "-" if delta is None else points(delta),
                f"{loop.num_adopted}/{sent}",
                f"{loop.num_fixed} / {loop.num_broken}",
            )
        ]
    return Table(
        title="Two passes",
        caption="Problems sent to a second pass, accuracy before and after, and selections that came from it.",
        headers=("pool", "sent on %", "first pass %", "both passes %", "difference", "adopted", "fixed / broken"),
        rows=tuple(rows),
    )


def _judge_table(results: StudyResults) -> Table:
    return Table(
        title="Agreement of scorers",
        caption=(
            "Spearman's rank correlation over all candidates that both have scored, every score turned so that higher "
            "is better; intervals resample problems (n)."
        ),
        headers=("one", "other", "Spearman", "candidates", "n"),
        rows=tuple(
            (row.one, row.other, number(row.spearman, digits=2), str(row.num_candidates), str(row.spearman.n))
            for row in results.judges
        ),
    )


def _rated_table(results: StudyResults) -> Table:
    return Table(
        title="What other scorers say of selections",
        caption=(
            "Mean score by each other scorer (a judge's rating, a model's reward) of our selections, of the best "
            "candidates by their labels (lowest violation, else correct; the mean over equals) and of all candidates; "
            "the difference is paired over problems."
        ),
        headers=("scorer", "ours", "oracle", "random", "ours minus oracle", "n"),
        rows=tuple(
            (
                row.name,
                *(number(estimate, digits=2) for estimate in (row.ours, row.oracle, row.random)),
                number(row.ours_minus_oracle, digits=2, signed=True),
                str(row.ours_minus_oracle.n),
            )
            for row in results.rated
        ),
    )


def study_tables(results: StudyResults) -> list[Table]:
    """All that have rows."""
    tables = [
        _overview_table(results),
        _generator_table(results),
        _ensemble_table(results),
        _pool_size_table(results),
        _pool_kind_table(results),
        _lambda_table(results),
        _variance_table(results),
        _threshold_table(results),
        _grid_table(results),
        _two_pass_table(results),
        _judge_table(results),
        _rated_table(results),
    ]
    return [table for table in tables if table.rows]
