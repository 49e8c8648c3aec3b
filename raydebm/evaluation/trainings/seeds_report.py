"""The summary over seeds as documents: Markdown, JSON, and one self-contained HTML page with the same numbers."""

from collections.abc import Sequence

from raydebm.evaluation.provenance import versions
from raydebm.evaluation.report.document import ReportDocument
from raydebm.evaluation.report.headline import unread_problems
from raydebm.evaluation.report.table_cells import number, with_interval
from raydebm.evaluation.results.entries import OURS, VOTE
from raydebm.evaluation.stats.significance import ALPHA, Comparison
from raydebm.evaluation.trainings.seed_signals import signal_sentence
from raydebm.evaluation.trainings.seeds import SeedRow, SeedSummary, seed_tables
from raydebm.run.directory import RunDir


def summary(seed_summary: SeedSummary) -> str:
    """What was found, in sentences that follow from the numbers alone."""
    text = [
        *unread_problems(seed_summary.texts_read),
        f"{len(seed_summary.seeds)} trainings on {seed_summary.num_problems} test problems of task "
        f"{seed_summary.task}.",
    ]
    text += selector_sentences(seed_summary.rows, seed_summary.comparisons)
    ours = seed_summary.row(OURS)
    if ours is not None and ours.sd is not None:
        unit = "mean violation" if seed_summary.is_continuous else "points of pass@1"
        spread = f"{ours.sd if seed_summary.is_continuous else 100 * ours.sd:.3g}"
        text.append(f"From one training to another it varies by {spread} {unit} (standard deviation).")
    text.append(signal_sentence(seed_summary.signals, continuous=seed_summary.is_continuous))
    return " ".join(filter(None, text))


def selector_sentences(rows: Sequence[SeedRow], comparisons: Sequence[Comparison]) -> list[str]:
    """What the selectors are worth, and which ones ours is shown to be better and worse than by the paired tests, after
    their correction; none without ours and its bounds."""
    by_name = {row.name: row for row in rows}
    if not {OURS, "random", "oracle"} <= by_name.keys():
        return []
    continuous = any(row.mean_violation.value is not None for row in rows)
    pick = number if continuous else with_interval
    shown = {"mu + lambda E": OURS, "random choice": "random", "majority vote": VOTE, "the oracle": "oracle"}
    values = [
        f"{title} {pick(row.mean_violation if continuous else row.pass_at_1)}"
        for title, name in shown.items()
        if (row := by_name.get(name)) is not None
    ]
    what = "Mean violation (lower is better)" if continuous else "Correct, in %"
    text = [
        f"{what}: {', '.join(values)}; 95 % intervals over problems in brackets.",
        f"Energy closes {with_interval(by_name[OURS].gap_closed)} % of the gap between random choice and the oracle.",
    ]
    ours = {row.other: row.verdict for row in comparisons if row.one == OURS}
    for title, verdict in (("Better", "better"), ("Worse", "worse")):
        names = [row.name for row in rows if ours.get(row.name) == verdict]
        if names:
            text.append(f"{title} than (p < {ALPHA:g} after Holm's correction): {', '.join(names)}.")
    return text


def write_seeds(seed_summary: SeedSummary, run: RunDir, *, command: str) -> str:
    """Write seeds.json, report.md and report.html below ``<run>/seeds/``; returns the page's address."""
    run.write_json(seed_summary.to_json(), "seeds", "seeds.json")
    return _document(seed_summary, command=command).write(run, "seeds")


def _document(seed_summary: SeedSummary, *, command: str) -> ReportDocument:
    """The summary, its tables, and how to make the numbers again."""
    return ReportDocument(
        title=f"{seed_summary.title}: {len(seed_summary.seeds)} seeds",
        summary=summary(seed_summary),
        tables=seed_tables(seed_summary),
        provenance=provenance(
            command, "95 %, percentile bootstrap over problems of each problem's mean over trainings"
        ),
    )


def provenance(command: str, intervals: str) -> dict[str, str]:
    """How to make the numbers again, and what their intervals are."""
    return {
        "command": command,
        "intervals": intervals,
        "versions": ", ".join(f"{name} {version}" for name, version in versions().items()),
    }
