"""Best distinct answers of a pool, for clients that request several (OpenAI's ``n``). Pure."""

import math
from dataclasses import dataclass, replace

from raydebm.decision.evidence.reference import PLAIN
from raydebm.decision.evidence.terms import PoolTable, representatives
from raydebm.records import Outcome, ScoredCandidate
from raydebm.service.core.result import TriageResult
from raydebm.service.routes.answer_bodies import ChoiceBody, TriageResponse, triage_body


@dataclass(frozen=True, slots=True)
class _Answer:
    best: ScoredCandidate
    probability: float | None
    proof: bool | None
    num_candidates: int

    @property
    def may_be_given(self) -> bool:
        """False for an answer that an exact constraint refutes."""
        return self.proof is not False and self.probability != 0


def best_answers(result: TriageResult, most: int) -> list[ChoiceBody]:
    """The selected answer, then the others: by probability, without a posterior by their lowest energy.

    Args:
        result: result of the request.
        most: maximum number of answers.
    """
    outcome = result.outcome
    if outcome.best is None:
        return []
    believed = [
        _Answer(belief.best, belief.probability, belief.cluster.proof, len(belief.candidates))
        for belief in result.beliefs
    ]
    selected, *others = believed or _by_energy(outcome, outcome.best, result.context.policy.lambda_)
    return [_body(answer) for answer in [selected, *(other for other in others if other.may_be_given)][:most]]


def _by_energy(outcome: Outcome, best: ScoredCandidate, lambda_: float) -> list[_Answer]:
    table = PoolTable.of([outcome.pool])
    rows = representatives(table, replace(PLAIN, lambda_=lambda_))
    answers = [
        _Answer(table.candidates[row], None, cluster.proof, len(cluster.rows))
        for row, cluster in zip(rows, table.clusters[0], strict=True)
    ]
    scored = [answer for answer in answers if math.isfinite(answer.best.total_energy(lambda_))]
    scored.sort(key=lambda answer: answer.best.total_energy(lambda_))
    key = best.report.vote_key
    own = [answer for answer in scored if answer.best.report.vote_key == key] or [_Answer(best, None, None, 1)]
    return own + [answer for answer in scored if answer.best.report.vote_key != key]


def _body(answer: _Answer) -> ChoiceBody:
    candidate = answer.best.candidate
    return ChoiceBody(
        answer=answer.best.report.answer,
        text=candidate.text or "",
        confidence=answer.probability,
        proof=answer.proof,
        num_candidates=answer.num_candidates,
        candidate_id=candidate.candidate_id,
        finish_reason=candidate.finish_reason,
    )


def triage_answer(result: TriageResult) -> TriageResponse:
    """The full record of one decision, with the requested choices."""
    most = result.context.num_choices
    return triage_body(result, None if most is None else best_answers(result, most))
