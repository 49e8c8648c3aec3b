"""Answers one request: runs the triage loop on a backend and writes down what happened.

In:   an Ask (asking.py), or candidates to score.
Out:  the bodies of schema.py.
Does not know: Ray, HTTP.
"""

import asyncio
import time
from collections.abc import Iterable
from dataclasses import dataclass

from raydebm.errors import ServiceError
from raydebm.identity import content_id
from raydebm.records import Candidate, ScoredCandidate
from raydebm.serving.asking import Ask, read_problem
from raydebm.serving.bodies import checked_item, response_body, score_item
from raydebm.serving.bundle import Bundle
from raydebm.serving.parts import Backend, Checker, Progress, Scorer, Source, TextToScore, Watch
from raydebm.serving.schema import ScoreItem, ScoreRequest, ScoreResponse, TriageResponse, Usage
from raydebm.triage.loop import solve


@dataclass(frozen=True, slots=True)
class TriageService:
    """The service without its network: what a request means and what its answer says."""

    bundle: Bundle
    backend: Backend

    async def triage(self, ask: Ask, on_progress: Progress | None = None) -> TriageResponse:
        """Run the loop for one request.

        Raises:
            ServiceError: 503 when no generator wrote anything; there is nothing to trust or mistrust then.
            RaydebmError: a part does not work (see ``triage.loop.solve``).
        """
        started = time.perf_counter()
        watch = Watch(on_progress)
        outcome = await solve(
            ask.problem,
            task=ask.task,
            policy=ask.policy,
            source=Source(ask, self.backend, watch),
            checker=Checker(self.backend, watch),
            scorer=Scorer(self.backend, watch),
        )
        if watch.drawn and all(candidate.text is None for candidate in watch.drawn):
            raise ServiceError(f"no generator answered: {outcome.reason}", 503, "generation_failed")
        elapsed_ms = 1000 * (time.perf_counter() - started)
        return response_body(ask, outcome, watch, elapsed_ms, self.bundle.versions)

    async def score(self, request: ScoreRequest, *, request_id: str) -> ScoreResponse:
        """Energies of given candidates; checked too when a task is known.

        Raises:
            ServiceError: the request is wrong, or a part does not work.
        """
        items = await (self._score_pairs(request) if request.problem is None else self._score_candidates(request))
        tokens = sum(item.num_tokens or 0 for item in items)
        return ScoreResponse(
            id=f"score-{request_id}",
            created=int(time.time()),
            model=f"raydebm/{self.bundle.tasks[0]}",
            data=items,
            usage=Usage(prompt_tokens=tokens, total_tokens=tokens),
            versions=dict(self.bundle.versions),
        )

    async def _score_pairs(self, request: ScoreRequest) -> list[ScoreItem]:
        try:
            pairs = request.text_pairs()
        except ValueError as error:
            raise ServiceError(str(error), 400, "bad_texts", "text_2") from error
        self._check_lengths([text for pair in pairs for text in pair], "text_2")
        texts = [TextToScore(str(index), *pair) for index, pair in enumerate(pairs)]
        found = await self.backend.score(texts)
        return [score_item(index, energies) for index, energies in enumerate(found)]

    async def _score_candidates(self, request: ScoreRequest) -> list[ScoreItem]:
        problem_body, texts = request.problem, request.candidates
        if problem_body is None or texts is None:
            raise ServiceError("give both 'problem' and 'candidates'", 400, "missing_text", "problem")
        self._check_lengths(texts, "candidates")
        task, problem = read_problem(self.bundle, request.task, problem_body)
        policy = self.bundle.policies[task.name]
        candidates = [
            Candidate(
                candidate_id=content_id("given", problem.problem_id, index, text),
                task=task.name,
                problem_id=problem.problem_id,
                generator="client",
                text=text,
                sample_index=index,
            )
            for index, text in enumerate(texts)
        ]
        energies, reports = await asyncio.gather(
            Scorer(self.backend, Watch(None)).score(problem, candidates), self.backend.check(problem, candidates)
        )
        lambda_ = policy.lambda_ if request.lambda_ is None else request.lambda_
        return [
            checked_item(index, ScoredCandidate(candidate=candidate, report=report, energies=found), lambda_)
            for index, (candidate, report, found) in enumerate(zip(candidates, reports, energies, strict=True))
        ]

    def _check_lengths(self, texts: Iterable[str], param: str) -> None:
        longest = max((len(text) for text in texts), default=0)
        if longest > self.bundle.max_problem_chars:
            message = f"a text has {longest} characters; at most {self.bundle.max_problem_chars} are accepted"
            raise ServiceError(message, 413, "text_too_long", param)
