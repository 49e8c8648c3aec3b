"""What users reported about problems that a run does not know: to learn from, or to compare versions on.

In:   the records folder of a service, and the texts of the run's problems.
Out:  one labelled decision per problem, dealt by a hash of its text into the share that is learned from and the share
      that is held out. A problem stays on its side in every later improvement, so that no version was ever fitted on
      what versions are compared on.
Does not know: Ray, torch, HTTP.
"""

from collections.abc import Mapping, Set
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from raydebm.decision.policy import Policy
from raydebm.decision_import.labelled import LabelledDecision, labelled_decisions
from raydebm.decision_import.sample import Origin
from raydebm.decisions.reader import DecisionReader
from raydebm.errors import PoolError
from raydebm.identity import share_of
from raydebm.pairs import text_key
from raydebm.run.directory import RunDir

HELD_OUT_SHARE = 0.3
"""Share of the problems that users reported on."""
WITHOUT_HELD_OUT = "without_held_out"
"""Key of a policy's source: true where it rests on the share that is learned from alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewOutcomes:
    """The newest labelled decision of each new problem."""

    learned: tuple[LabelledDecision, ...]
    held_out: tuple[LabelledDecision, ...]
    """Scored by the run's own ensemble, so that the version in force can be judged by its own energies."""
    reported: int
    """Decisions with an outcome."""
    contradictory: int
    """Left out, because the reports about them cannot all be true."""
    known: int
    """Left out, because the run has the problem, labelled from gold or from an earlier improvement."""
    repeated: int
    """Left out, because a newer decision about the same problem is in."""
    spent: int
    """Left out of the held-out share, because the policy in force was calibrated on a decision about the same problem,
    or another ensemble than the run's scored them."""

    def check(self, least: int) -> None:
        """
        Args:
            least: decisions on either side.

        Raises:
            PoolError: there are too few to learn from, or to compare on; the message says how many are missing.
        """
        for name, outcomes in (("to learn from", self.learned), ("to compare on", self.held_out)):
            if len(outcomes) < least:
                raise PoolError(
                    f"{len(outcomes)} outcomes about new problems are {name}, and at least {least} are needed "
                    f"({self._left_out()}); report more (POST /v1/decisions/{{record_id}}/outcome)"
                )

    def _left_out(self) -> str:
        counts = {
            "contradict themselves": self.contradictory,
            "are about problems that the run has": self.known,
            "were decided again later": self.repeated,
            "had a part in the policy in force or were scored by another ensemble": self.spent,
        }
        told = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
        return f"of {self.reported} decisions with an outcome {told or 'none was left out'}"


Source = Mapping[str, Any]
"""Where the reported outcomes come from that a policy was calibrated on, as ``recertify.source_of`` says it."""


def source_in_force(run: RunDir, policy: Policy) -> Source | None:
    """What the policy in force was calibrated on; None: on no reported outcome.

    A promise says it. Without one the run's last calibration does, because a policy that was promoted since was made of
    that calibration's by a round of improvement, and knows what it knew.

    Raises:
        ConfigError: ``calibration/decision.json`` is damaged.
    """
    if policy.guarantee is not None and policy.guarantee.get("outcomes") is not None:
        source: Source = policy.guarantee["outcomes"]
        return source
    remedy = "run `raydebm calibrate` again"
    fitted = run.read_object("calibration", "decision.json", remedy=remedy)
    return None if fitted is None else fitted.get("outcomes")


def new_outcomes(reader: DecisionReader, origin: Origin, *, known: Set[str], source: Source | None) -> NewOutcomes:
    """Read the decisions, and deal them.

    Args:
        reader: the records folder.
        origin: the run's task and ensemble, and which decisions count.
        known: ``text_key`` of the run's problems.
        source: what the policy in force was calibrated on, which compares nothing.

    Raises:
        UnknownNameError: a decision is of an unknown task.
    """
    reported = list(labelled_decisions(reader, lambda _: origin.task, where=origin.where, by=origin.by))
    usable = [decision for decision in reported if decision.fault is None]
    new = [decision for decision in usable if _key(decision) not in known]
    newest = {_key(decision): decision for decision in sorted(new, key=lambda decision: decision.record.time)}
    learned = tuple(decision for key, decision in newest.items() if not _is_held_out(key))
    dealt = [decision for key, decision in newest.items() if _is_held_out(key)]
    spent = {_key(decision) for decision in reported if _was_learned_from(decision, source)}
    held_out = tuple(each for each in dealt if _is_own(each, origin) and _key(each) not in spent)
    return NewOutcomes(
        learned=learned,
        held_out=held_out,
        reported=len(reported),
        contradictory=len(reported) - len(usable),
        known=len(usable) - len(new),
        repeated=len(new) - len(newest),
        spent=len(dealt) - len(held_out),
    )


def _key(decision: LabelledDecision) -> str:
    """What the ensemble read, which may hold the earlier turns of a chat."""
    return text_key(decision.record.scored_prompt or decision.problem.prompt)


def _is_held_out(key: str) -> bool:
    return share_of("held out", key) < HELD_OUT_SHARE


def _is_own(decision: LabelledDecision, origin: Origin) -> bool:
    return origin.checkpoint is None or decision.record.versions.get("checkpoint") == origin.checkpoint


def saw_held_out(source: Source | None) -> bool:
    """Whether a policy was calibrated on reported outcomes, those of problems that are held out among them."""
    return source is not None and not source.get(WITHOUT_HELD_OUT, False)


def _was_learned_from(decision: LabelledDecision, source: Source | None) -> bool:
    if source is None or not saw_held_out(source):
        return False
    since, until = (datetime.fromisoformat(source[name]) for name in ("since", "until"))
    return since <= decision.record.time <= until
