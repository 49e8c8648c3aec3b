"""What the triage loop has candidates judged by: the checks, the ensemble, baselines that are evidence, and a model
that says which answers mean the same.

Each is one of the loop's protocols on top of the backend. Does not know: Ray, HTTP.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from raydebm.decision.evidence.equality import AnswerPair, MergedAnswers, VerdictCache, read_verdict
from raydebm.errors import RaydebmError, ScoringError
from raydebm.identity import content_id, seed_for
from raydebm.records import (
    Candidate,
    ConstraintReport,
    Energies,
    GenerationRequest,
    Problem,
    Reasoning,
    Sampling,
    ScoredCandidate,
)
from raydebm.scorer.texts import TextToScore
from raydebm.serving.core.activity import Activity, EqualityUse
from raydebm.serving.core.backend import Backend
from raydebm.serving.core.request import RequestContext
from raydebm.serving.logs import redact
from raydebm.serving.settings.app_args import EqualityArgs

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BackendChecker:
    """The gold-free checks of the task."""

    backend: Backend
    activity: Activity

    async def check(self, problem: Problem, candidates: Sequence[Candidate]) -> list[ConstraintReport]:
        """One report per candidate, in their order."""
        with self.activity.timed("check"):
            return await self.backend.check(problem, candidates)


@dataclass(frozen=True, slots=True)
class Scorer:
    """The ensemble."""

    backend: Backend
    activity: Activity
    prompt: str | None = None
    """What stands for the problem, when earlier turns of a chat belong to it; None: the problem's prompt."""
    reasoning: Reasoning = "answer"
    """What is scored of a candidate that thinks before it answers."""
    known: dict[str, Energies | None] = field(default_factory=dict)
    """By text. Candidates that say the same in the same words get the same energies, in whatever batches they came."""

    async def score(self, problem: Problem, candidates: Sequence[Candidate]) -> list[Energies | None]:
        """Energies per candidate, in their order; None for one that could not be scored.

        Raises:
            ScoringError: the backend broke its contract.
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
    """Scores of baselines (``decision.sampling.one_pass.ScoreSource``). They are one kind of evidence among
    others, so a request is decided without them where they do not work, with no promise (``sampling_conditions``)."""

    backend: Backend
    activity: Activity
    prompt: str | None = None
    """As for ``Scorer``."""
    known: dict[str, Mapping[str, float]] = field(default_factory=dict)
    """By text."""

    async def scores(self, problem: Problem, candidates: Sequence[Candidate]) -> list[Mapping[str, float]]:
        """Scores by name per candidate, in their order; empty where the baselines do not work."""
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


class ComparisonSource(Protocol):
    """Asks the judge of equality within the limits of a request; ``source.Source``."""

    @property
    def context(self) -> RequestContext:
        """The request."""
        ...

    @property
    def activity(self) -> Activity:
        """What it did so far."""
        ...

    async def judge(self, requests: Sequence[GenerationRequest], *, use: EqualityUse, max_usd: float | None) -> None:
        """See ``Source.judge``."""
        ...


@dataclass(frozen=True, slots=True)
class JudgedEquality:
    """Which answers of one request mean the same, as a generator says (``decision.sampling.one_pass.AnswerEquality``).

    What it does not say, or may not be asked, counts as different: answers are then equal where their normalised words
    are, as without a judge.
    """

    source: ComparisonSource
    args: EqualityArgs
    cache: VerdictCache
    use: EqualityUse
    answers: MergedAnswers

    @classmethod
    def of(cls, source: ComparisonSource, args: EqualityArgs, cache: VerdictCache) -> "JudgedEquality":
        """The judge of one request, whose activity gets what it was asked."""
        use = source.activity.equality = EqualityUse(args.judge)
        return cls(source, args, cache, use, MergedAnswers(source.context.scored_prompt))

    async def merged(self, problem: Problem, pool: Sequence[ScoredCandidate]) -> tuple[ScoredCandidate, ...]:
        """See ``AnswerEquality``."""
        with self.source.activity.timed("equality"):
            together = await self.answers.merge(pool, self._wording, self._compare)
        self.use.groups = self.answers.groups()
        return together

    async def _compare(self, pairs: Sequence[AnswerPair]) -> list[bool | None]:
        known = {pair: verdict for pair in pairs if (verdict := self._known(pair)) is not None}
        self.use.num_cached += len(known)
        said = await self._ask([pair for pair in pairs if pair not in known])
        return [known.get(pair, said.get(pair)) for pair in pairs]

    async def _ask(self, pairs: Sequence[AnswerPair]) -> dict[AnswerPair, bool]:
        """What the judge says of pairs that are not known, as far as the limits go."""
        use, num_before = self.use, len(self.use.asked)
        allowed = pairs[: max(0, self.args.max_calls - num_before)]
        if len(allowed) < len(pairs):
            use.because(f"a request may compare {self.args.max_calls} pairs (general.equality.max_calls)")
        by_id = {(request := self._request(pair)).candidate_id: (request, pair) for pair in allowed}
        try:
            if by_id:
                requests = [request for request, _ in by_id.values()]
                await self.source.judge(requests, use=use, max_usd=self.args.max_usd)
        except (RaydebmError, OSError) as error:
            use.because(str(error))
        verdicts: dict[AnswerPair, bool] = {}
        for reply in use.replies:
            if reply.candidate_id in by_id and (verdict := self._read(reply)) is not None:
                pair = by_id[reply.candidate_id][1]
                verdicts[pair] = verdict
                self.cache.keep(self._owner, pair, verdict)
        num_asked = len(use.asked) - num_before
        use.num_failed += num_asked - len(verdicts)
        use.num_skipped += len(pairs) - num_asked
        if len(verdicts) < len(pairs):
            facts = {"judge": use.judge, "reasons": [redact(reason) for reason in use.reasons]}
            log.warning("answers were not compared", extra={"facts": facts})
        return verdicts

    def _read(self, reply: Candidate) -> bool | None:
        if reply.text is None:
            self.use.because(reply.error or "the judge gave no reply")
            return None
        verdict = read_verdict(reply.text)
        if verdict is None:
            self.use.because("a reply of the judge says neither yes nor no")
        return verdict

    def _known(self, pair: AnswerPair) -> bool | None:
        return None if self.source.context.fresh else self.cache.find(self._owner, pair)

    @property
    def _owner(self) -> str:
        """The caller and the judge as it is configured: nothing is shared between two of them."""
        context = self.source.context
        configs = [config.model_dump(mode="json") for config in context.bundle.generator_configs()]
        return content_id(context.owner, [each for each in configs if each["name"] == self.args.judge])

    def _request(self, pair: AnswerPair) -> GenerationRequest:
        """A pair whose verdict is still not known after an earlier pass is another request, with a reply of its own."""
        problem, messages = self.source.context.problem, pair.messages()
        num_before = sum(asked.messages == messages for asked in self.use.asked)
        return GenerationRequest(
            task=problem.task,
            problem_id=problem.problem_id,
            generator=self.args.judge,
            messages=messages,
            sampling=Sampling(temperature=0.0, top_p=1.0, max_tokens=self.args.max_tokens),
            seed=seed_for("equality", pair.digest, num_before),
            sample_index=num_before,
        )

    def _wording(self, scored: ScoredCandidate) -> str:
        """The answer alone, without the marks of its canonical text."""
        context, canonical = self.source.context, scored.report.answer or ""
        return str(context.task.parse(context.problem, canonical) or canonical)


def _named(energies: Energies | None, candidate_id: str) -> Energies | None:
    return None if energies is None else replace(energies, candidate_id=candidate_id)
