"""The version in force and a new one, on held-out outcomes that neither was fitted on.

In:   labelled decisions, both policies, and the new version's scorer where it has another one.
Out:  a paired comparison, and whether the new version is worse.
Does not know: files, Ray, HTTP. No generator is asked: both decide about the recorded candidates.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from raydebm.decision.policy import Policy, policy_id
from raydebm.decision.redecide import Redecision, recorded_outcome
from raydebm.decision_import.labelled import LabelledDecision
from raydebm.decisions.paired import PairedDecision, PolicyChoice
from raydebm.decisions.stored_decisions import Stored
from raydebm.decisions.stored_replay import Changes, OtherEnsemble, replay_stored
from raydebm.evaluation.studies.policy_pairs import PolicyComparison, compare_policies
from raydebm.records import Decision, Verdict

RIGHT = {Verdict.CORRECT: True, Verdict.INCORRECT: False}


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionTrial:
    """A new version against the one in force."""

    policy: Policy
    """The new version's."""
    comparison: PolicyComparison
    """``first`` is the version in force, ``second`` the new one."""

    @property
    def is_worse(self) -> bool:
        """Whether held-out outcomes show it to be worse: the 95 % interval of the difference in right answers lies
        below 0, or that in wrong answers above 0."""
        right, wrong = self.comparison.right.difference, self.comparison.wrong.difference
        fewer_right = right.high is not None and right.high < 0
        more_wrong = wrong.low is not None and wrong.low > 0
        return fewer_right or more_wrong


def trial_of(
    held_out: Sequence[LabelledDecision], *, old: Policy, new: Policy, ensemble: OtherEnsemble | None = None
) -> VersionTrial:
    """Let both versions decide about every held-out decision.

    Args:
        held_out: at least one, scored by the ensemble in force.
        old: the policy in force.
        new: the new version's.
        ensemble: its own; None: the one in force, whose energies are recorded.
    """
    stored = [_stored(decision) for decision in held_out]
    before = [replayed.again for replayed in replay_stored(stored, Changes(policy=old))]
    after = [replayed.again for replayed in replay_stored(stored, Changes(policy=new), ensemble=ensemble)]
    versions = policy_id(old), policy_id(new)
    pairs = [_paired(*each, versions) for each in zip(held_out, before, after, strict=True)]
    return VersionTrial(policy=new, comparison=compare_policies(pairs, versions=versions))


def _stored(decision: LabelledDecision) -> Stored:
    record = decision.record
    return Stored(
        recorded=recorded_outcome(record.outcome, record_id=record.record_id, policy=record.policy),
        task=record.problem.task,
        prompt=record.scored_prompt or record.problem.prompt,
    )


def _paired(
    decision: LabelledDecision, before: Redecision, after: Redecision, versions: tuple[str, str]
) -> PairedDecision:
    is_known = Decision.REGENERATE not in (before.decision, after.decision)
    return PairedDecision(
        record_id=decision.record.record_id,
        time=decision.record.time,
        problem=(decision.problem.task, decision.problem.problem_id),
        role="first",
        first=_choice(decision, before, versions[0]),
        second=_choice(decision, after, versions[1]),
        agrees=_agree(before, after) if is_known else None,
        exact=before.exact and after.exact,
        has_outcome=True,
    )


def _choice(decision: LabelledDecision, again: Redecision, version: str) -> PolicyChoice:
    answered = again.decision is Decision.ACCEPT
    label = None if again.selected is None else decision.labels.get(again.selected)
    right = None if label is None else RIGHT.get(label.verdict)
    return PolicyChoice(
        version=version,
        answered=answered,
        right=right if answered else False,
        num_candidates=again.num_candidates,
        cost_usd=again.cost_usd,
    )


def _agree(before: Redecision, after: Redecision) -> bool:
    if before.decision is not after.decision:
        return False
    keys = [None if each.best is None else each.best.report.vote_key for each in (before, after)]
    return (
        before.decision is Decision.ABSTAIN
        or before.selected == after.selected
        or (keys[0] is not None and keys[0] == keys[1])
    )
