"""Replay of stored decisions under changes, with counts of the differences.

In:   stored decisions, changes, optionally labels and an ensemble.
Out:  one ``Replayed`` per decision, and their ``ReplayTally``; rows of a file.
Independent of: Ray, HTTP, terminals. Calls no endpoint.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from raydebm.config import CostsConfig
from raydebm.decision.policy import Policy
from raydebm.decision.redecide import Redecision, redecide, with_energies
from raydebm.evaluation.stats.intervals import Bootstrap
from raydebm.evaluation.stats.significance import Comparison, compare, holm_adjusted
from raydebm.records import Decision, Outcome, Reasoning, Verdict
from raydebm.scorer.texts import TextScorer, TextToScore, energies_of_lists
from raydebm.service.store.record import DecisionRecord

RESCORED_AT_ONCE = 16
"""Number of decisions whose candidates are scored in one call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """Changes to decisions. Default: none, which reproduces every decision."""

    policy: Policy | None = None
    """Replacement of the recorded policy. Default: each decision's own."""
    values: Mapping[str, Any] = field(default_factory=dict)
    """Changed keys of ``Policy.to_json``, applied to either policy."""
    costs: CostsConfig | None = None
    """Costs that replace ``tau_answer`` and lower ``tau_accept`` to where no further pass can pay for itself
    (``decision.costs``)."""

    def policy_for(self, recorded: Policy) -> Policy:
        """The changed policy. Raises ConfigError for values that contradict each other or are out of range."""
        base = recorded if self.policy is None else self.policy
        values = dict(self.values)
        if self.costs is not None:
            tau_answer = self.costs.answer_threshold
            tau_accept = max(min(base.tau_accept, self.costs.accept_limit), tau_answer)
            values = {"tau_answer": tau_answer, "tau_accept": tau_accept, **values}
        return base.changed(values)


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherEnsemble:
    """An ensemble for rescoring candidates."""

    scorer: TextScorer
    reasoning: Reasoning = "answer"
    """Handling of a candidate's thinking before its answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """A replayed decision."""

    record: DecisionRecord
    again: Redecision
    guaranteed: bool
    """True if the policy of the replay has a certified guarantee that applies: unchanged, with the recorded
    energies."""

    @property
    def same_answer(self) -> bool:
        """True if the selected answers are equal, accepted or not."""
        before, after = self.record.outcome.best, self.again.best
        if before is None or after is None:
            return before is after
        keys = before.report.vote_key, after.report.vote_key
        return self.record.selected == self.again.selected or (keys[0] is not None and keys[0] == keys[1])

    @property
    def changed(self) -> bool | None:
        """True if the decision or the accepted answer differs. None if that depends on candidates that are not in the
        record."""
        before, after = self.record.outcome.decision, self.again.decision
        if after is Decision.REGENERATE:
            return None
        return before is not after or (after is Decision.ACCEPT and not self.same_answer)


def replay_stored(
    records: Iterable[DecisionRecord], changes: Changes, *, ensemble: OtherEnsemble | None = None
) -> Iterator[Replayed]:
    """Replay decisions in order, a few in memory at a time."""
    policies: dict[Policy, Policy] = {}
    decisions = ((record, record.outcome) for record in records)
    for record, outcome in decisions if ensemble is None else _rescored(records, ensemble):
        if record.policy not in policies:
            policies[record.policy] = changes.policy_for(record.policy)
        policy = policies[record.policy]
        is_certified = policy.guarantee is not None and bool(policy.guarantee["certified"])
        yield Replayed(
            record=record,
            again=redecide(outcome, record.policy, policy, is_rescored=ensemble is not None),
            # The guarantee was not certified with another ensemble's confidences.
            guaranteed=is_certified and ensemble is None,
        )


def _rescored(records: Iterable[DecisionRecord], ensemble: OtherEnsemble) -> Iterator[tuple[DecisionRecord, Outcome]]:
    remaining = iter(records)
    while group := list(islice(remaining, RESCORED_AT_ONCE)):
        texts = [_texts(record, ensemble.reasoning) for record in group]
        energies = energies_of_lists(ensemble.scorer, texts)
        for record, read, scored in zip(group, texts, energies, strict=True):
            by_id = {text.candidate_id: value for text, value in zip(read, scored, strict=True)}
            yield record, with_energies(record.outcome, by_id)


def _texts(record: DecisionRecord, reasoning: Reasoning) -> list[TextToScore]:
    prompt = record.problem.prompt if record.scored_prompt is None else record.scored_prompt
    candidates = (scored.candidate.as_scored(reasoning) for scored in record.outcome.pool)
    return [TextToScore(each.candidate_id, prompt, each.text) for each in candidates if each.text is not None]


class ReplayedPair(NamedTuple):
    """Verdicts on two policies' accepted answers to one problem: 1 if right, -1 if wrong, 0 if none was accepted."""

    recorded: int
    again: int


@dataclass(slots=True)
class ReplayTally:
    """Counts of recorded and replayed decisions."""

    moves: Counter[tuple[Decision, Decision]] = field(default_factory=Counter)
    """(recorded, replayed) -> number of decisions; ``replayed`` may be REGENERATE."""
    counts: Counter[str] = field(default_factory=Counter)
    """Decisions that are ``other_answer`` (accepted before and after with different answers), ``inexact``
    (``Redecision.exact``) or ``guaranteed`` (``Replayed.guaranteed``). Numbers of ``candidates``, and of accepted
    answers that are ``labeled`` and ``correct``, each ``_before`` and ``_after``."""
    pairs: dict[tuple[str, str], ReplayedPair] = field(default_factory=dict)
    """Pairs by task and problem id, from the last decision with a label of each accepted answer and of a selection."""

    @property
    def num_decisions(self) -> int:
        """Number of replayed decisions."""
        return self.moves.total()

    @property
    def num_pass_missing(self) -> int:
        """Number of decisions that need a pass that was not recorded."""
        return sum(count for (_, new), count in self.moves.items() if new is Decision.REGENERATE)

    @property
    def num_changed(self) -> int:
        """Number of decisions that differ, or accept another answer, without those that need an unrecorded pass."""
        moved = sum(count for (old, new), count in self.moves.items() if old is not new)
        return moved - self.num_pass_missing + self.counts["other_answer"]

    def num_accepted(self, place: int) -> int:
        """Number of accepted decisions, as recorded (``place`` 0) or replayed (1)."""
        return sum(count for move, count in self.moves.items() if move[place] is Decision.ACCEPT)

    def add(self, replayed: Replayed, labels: Mapping[str, Verdict]) -> None:
        """Count one decision; ``labels`` are verdicts by candidate id, of which unlabeled ones do not count. A verdict
        on the recorded selection also holds for another candidate with the same answer."""
        record, outcome, again, counts = replayed.record, replayed.record.outcome, replayed.again, self.counts
        before, after = outcome.decision is Decision.ACCEPT, again.decision is Decision.ACCEPT
        self.moves[(outcome.decision, again.decision)] += 1
        counts["other_answer"] += before and after and not replayed.same_answer
        counts["inexact"] += not again.exact
        counts["guaranteed"] += replayed.guaranteed
        counts["candidates_before"] += len(outcome.pool)
        counts["candidates_after"] += again.num_candidates
        of_recorded = _WORTH.get(labels.get(record.selected or "", Verdict.UNLABELED))
        of_again = _WORTH.get(labels.get(again.selected or "", Verdict.UNLABELED))
        if of_again is None and replayed.same_answer:  # another wording of the judged answer
            of_again = of_recorded
        for name, is_given, worth in (("before", before, of_recorded), ("after", after, of_again)):
            counts[f"labeled_{name}"] += is_given and worth is not None
            counts[f"correct_{name}"] += is_given and worth == 1
        given = [worth for is_given, worth in ((before, of_recorded), (after, of_again)) if is_given]
        is_known = None not in given and (of_recorded, of_again) != (None, None)
        if is_known and again.decision is not Decision.REGENERATE:
            self.pairs[record.problem.task, record.problem.problem_id] = ReplayedPair(
                (of_recorded or 0) if before else 0, (of_again or 0) if after else 0
            )


_WORTH = {Verdict.CORRECT: 1, Verdict.INCORRECT: -1}


def replayed_row(replayed: Replayed) -> dict[str, Any]:
    """Line of ``raydebm replay --out``."""
    record, again = replayed.record, replayed.again
    sigma = None if again.best is None or again.best.energies is None else again.best.energies.sigma
    return {
        "record_id": record.record_id,
        "task": record.problem.task,
        "problem_id": record.problem.problem_id,
        "recorded_decision": str(record.outcome.decision),
        "recorded_selected": record.selected,
        "decision": str(again.decision),
        "as_it_stands": str(again.as_it_stands),
        "changed": replayed.changed,
        "selected": again.selected,
        "same_answer": replayed.same_answer,
        "sigma": sigma,
        "signal": again.signal,
        "penalty": again.penalty,
        "confidence": again.confidence,
        "fields": {field.path: field.confidence for field in again.fields},
        "promised": replayed.guaranteed,
        "num_passes": again.num_passes,
        "num_candidates": again.num_candidates,
        "exact": again.exact,
    }


NUM_BOOTSTRAP = 1000


def compare_policies(pairs: Sequence[ReplayedPair]) -> tuple[Comparison, Comparison]:
    """Test the differences in right and in wrong returned answers, replayed minus recorded, each by the exact McNemar
    test, with Holm-corrected p values. There is one pair per problem, because decisions about one problem are not
    independent."""
    bootstrap = Bootstrap.of(len(pairs), num_bootstrap=NUM_BOOTSTRAP, seed=0)
    tests = []
    for worth in (1, -1):
        values = {
            name: np.array([getattr(pair, name) == worth for pair in pairs], dtype=np.float64)
            for name in ReplayedPair._fields
        }
        tests += compare(values, [("again", "recorded")], bootstrap=bootstrap, seed=0)
    right, wrong = (
        replace(test, p_holm=p) for test, p in zip(tests, holm_adjusted([t.p_value for t in tests]), strict=True)
    )
    return right, wrong
