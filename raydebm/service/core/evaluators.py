"""Evaluators of candidates for the triage loop: the checks, the ensemble, and the baselines that are evidence.

Each implements one of the loop's protocols on the backend. Does not know: Ray, HTTP.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from raydebm.errors import RaydebmError, ScoringError, ServiceError
from raydebm.generators.requests import CHARS_PER_TOKEN
from raydebm.records import (
    Candidate,
    ConstraintReport,
    Energies,
    Problem,
    Reasoning,
    ScoredCandidate,
)
from raydebm.scorer.texts import TextToScore
from raydebm.service.core.activity import Activity
from raydebm.service.core.backend import Backend

log = logging.getLogger(__name__)

NO_ENERGY = "the ensemble gave no finite energy"
NO_ANSWER = "no answer in the requested output format was found in the text"


def fault_of(judged: Sequence[ScoredCandidate]) -> ServiceError | None:
    """Error to raise if no answered candidate could be checked and scored, else None.

    Such candidates are not known to be wrong, so an abstention would be misleading.
    """
    reasons = [_fault(scored) for scored in judged]
    if not reasons or None in reasons:
        return None
    code = "check_failed" if judged[0].report.error is not None else "scoring_failed"
    return ServiceError(f"no candidate could be checked and scored: {reasons[0]}", 503, code, retry=False)


def _fault(scored: ScoredCandidate) -> str | None:
    if scored.report.error is not None:
        return scored.report.error
    return NO_ENERGY if scored.energies is None else None


def check_tokens(num_chars: int, most: int, param: str = "candidates") -> None:
    """Raise ServiceError 413 if the texts have more than ``most`` tokens together, estimated from their length."""
    num_tokens = num_chars // CHARS_PER_TOKEN
    if num_tokens > most:
        message = (
            f"the texts to score, each with its problem, are about {num_tokens} tokens; at most {most} are "
            "accepted in one request, so send them in several"
        )
        raise ServiceError(message, 413, "too_many_tokens", param)


def check_lengths(texts: Iterable[str], param: str, limit: int) -> None:
    """Raise ServiceError 413 for a text that is too long."""
    longest = max((len(text) for text in texts), default=0)
    if longest > limit:
        message = f"a text has {longest} characters; at most {limit} are accepted"
        raise ServiceError(message, 413, "text_too_long", param)


@dataclass(frozen=True, slots=True)
class BackendChecker:
    """The gold-free checks of the task."""

    backend: Backend
    activity: Activity

    async def check(self, problem: Problem, candidates: Sequence[Candidate]) -> list[ConstraintReport]:
        """One report per candidate, in order."""
        with self.activity.timed("check"):
            return await self.backend.check(problem, candidates)


@dataclass(frozen=True, slots=True)
class Scorer:
    """The ensemble."""

    backend: Backend
    activity: Activity
    prompt: str | None = None
    """Problem text to score, with the earlier turns of a chat. Default: the problem's prompt."""
    reasoning: Reasoning = "answer"
    """Handling of a candidate's thinking before its answer."""
    known: dict[str, Energies | None] = field(default_factory=dict)
    """Energies by text, so that equal texts get equal energies regardless of their batches."""

    async def score(self, problem: Problem, candidates: Sequence[Candidate]) -> list[Energies | None]:
        """Energies per candidate, in order; None for one that could not be scored.

        Raises:
            ScoringError: the backend returned the wrong number of results.
        """
        prompt = problem.prompt if self.prompt is None else self.prompt
        candidates = [candidate.as_scored(self.reasoning) for candidate in candidates]
        wanted = {candidate.text or "": candidate.candidate_id for candidate in candidates}
        texts = [TextToScore(name, prompt, text) for text, name in wanted.items() if text not in self.known]
        if texts:
            with self.activity.timed("score"):
                energies = await self.backend.score(texts)
            if len(energies) != len(texts):
                raise ScoringError(f"the scorer returned {len(energies)} results for {len(texts)} texts; restart it")
            self.known.update(zip([text.text for text in texts], energies, strict=True))
        return [_named(self.known[candidate.text or ""], candidate.candidate_id) for candidate in candidates]


@dataclass(frozen=True, slots=True)
class Baselines:
    """Scores of baselines (``decision.sampling.one_pass.ScoreSource``).

    They are optional evidence: if they fail, the request is decided without them and without its guarantee
    (``sampling_conditions``).
    """

    backend: Backend
    activity: Activity
    prompt: str | None = None
    """As in ``Scorer``."""
    known: dict[str, Mapping[str, float]] = field(default_factory=dict)
    """Scores by text."""

    async def scores(self, problem: Problem, candidates: Sequence[Candidate]) -> list[Mapping[str, float]]:
        """Scores by name per candidate, in order; empty if the baselines fail."""
        prompt = problem.prompt if self.prompt is None else self.prompt
        wanted = {candidate.text or "": candidate.candidate_id for candidate in candidates}
        texts = [TextToScore(name, prompt, text) for text, name in wanted.items() if text not in self.known]
        if texts:
            try:
                with self.activity.timed("baselines"):
                    scores = await self.backend.baseline_scores(texts)
                self.known.update(zip([text.text for text in texts], scores, strict=True))
            except Exception as error:
                self.activity.has_all_evidence = False
                is_ours = isinstance(error, RaydebmError)
                facts = {"reason": str(error) if is_ours else type(error).__name__}
                log.error("baselines failed", exc_info=not is_ours, extra={"facts": facts})
                self.known.update({text.text: {} for text in texts})
        return [self.known[candidate.text or ""] for candidate in candidates]


def _named(energies: Energies | None, candidate_id: str) -> Energies | None:
    return None if energies is None else replace(energies, candidate_id=candidate_id)
