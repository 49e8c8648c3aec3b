"""What a run directory holds about a split's candidates."""

from collections.abc import Mapping, Set
from dataclasses import dataclass, field

from raydebm.records import Candidate, ConstraintReport, Energies, Label
from raydebm.store import CANDIDATES, ENERGIES, LABELS, REPORTS, RunDir, candidate_of, energies_of, label_of, report_of


@dataclass(slots=True)
class RecordedPools:
    """Candidates with what is known of them, by candidate id. ``energies`` holds None where scoring failed."""

    candidates: dict[str, Candidate] = field(default_factory=dict)
    reports: dict[str, ConstraintReport] = field(default_factory=dict)
    labels: dict[str, Label] = field(default_factory=dict)
    energies: dict[str, Energies | None] = field(default_factory=dict)
    scores: dict[str, dict[str, float]] = field(default_factory=dict)
    """Of the baselines that are evidence, by name."""

    def add(self, run: RunDir, problem_ids: Set[str], *, candidates: str, labels: str, energies: str) -> None:
        """Read the stages' tables and keep what belongs to the problems.

        Raises:
            PoolError: a table is missing or unreadable.
        """
        found = map(candidate_of, run.read_table(CANDIDATES, candidates, "candidates.parquet"))
        kept = {candidate.candidate_id: candidate for candidate in found if candidate.problem_id in problem_ids}
        self.candidates |= kept
        reports = map(report_of, run.read_table(REPORTS, labels, "reports.parquet"))
        self.reports |= {report.candidate_id: report for report in reports if report.candidate_id in kept}
        judged = map(label_of, run.read_table(LABELS, labels, "labels.parquet"))
        self.labels |= {label.candidate_id: label for label in judged if label.candidate_id in kept}
        rows = run.read_table(ENERGIES, energies, "energies.parquet")
        self.energies |= {row["candidate_id"]: energies_of(row) for row in rows if row["candidate_id"] in kept}

    def add_scores(self, found: Mapping[str, Mapping[str, float | None]]) -> None:
        """Add what baselines say about the candidates that are here: name -> candidate id -> score."""
        for name, by_id in found.items():
            for candidate_id, score in by_id.items():
                if candidate_id in self.candidates and score is not None:
                    self.scores.setdefault(candidate_id, {})[name] = score
