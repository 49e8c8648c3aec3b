"""What a request tells of itself while it runs: the facts of its progress events.

In:   what the loop does (triage.drawing.Observer); ``parts.Source`` tells of passes and arrivals itself.
Out:  one dict an event, with ``event`` first; ``docs/service.md`` lists them.
Does not know: how events travel.
"""

from dataclasses import dataclass
from typing import Any

from raydebm.decision.sampling.waves import Wave
from raydebm.records import PassRecord, ScoredCandidate
from raydebm.serving.asking import Ask
from raydebm.serving.bodies import candidate_body, pass_body
from raydebm.serving.parts import Watch


@dataclass(frozen=True, slots=True)
class Teller:
    """Tells a request's watchers what the loop finds and decides."""

    ask: Ask
    watch: Watch

    def begun(self) -> None:
        ask = self.ask
        self.watch.tell(
            "start",
            request_id=ask.request_id,
            task=ask.problem.task,
            problem_id=ask.problem.problem_id,
            seed=ask.seed,
            policy=ask.policy.to_json(),
        )

    def scored(self, scored: ScoredCandidate) -> None:
        self.watch.judged.append(scored)
        if self.watch.on_progress is None:
            return
        body: dict[str, Any] = candidate_body(scored, self.ask.policy.lambda_).model_dump()
        if not self.ask.return_candidates:
            body["text"] = None
        self.watch.tell("scored", **{"pass": scored.candidate.pass_index}, candidate=body)

    def waved(self, wave: Wave) -> None:
        reason = wave.decision.reason
        self.watch.tell(
            "wave",
            **{"pass": wave.pass_index, "wave": wave.number},
            num_planned=wave.num_planned,
            num_samples=wave.num_samples,
            num_cancelled=wave.num_cancelled,
            stop_reason=None if reason is None else reason.value,
            stop_words=wave.decision.words,
        )

    def decided(self, record: PassRecord, reason: str) -> None:
        if self.watch.on_progress is not None:
            self.watch.tell("decision", **pass_body(record).model_dump(), reason=reason)
