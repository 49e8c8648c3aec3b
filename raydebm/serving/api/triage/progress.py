"""Progress events as clients see them: one dict per event, with ``event`` first; ``docs/service.md`` lists them."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from raydebm.decision.sampling.deadline import is_late
from raydebm.records import GenerationRequest
from raydebm.serving.api.triage.bodies import candidate_body, pass_body
from raydebm.serving.core.events import (
    CandidateArrived,
    CandidateScored,
    Event,
    PassDecided,
    PassPlanned,
    Started,
    WaveEnded,
)
from raydebm.serving.logs import redact


def progress_facts(event: Event) -> dict[str, Any]:
    """The name and the facts of one event."""
    match event:
        case Started():
            return _started(event)
        case PassPlanned():
            return _planned(event)
        case CandidateArrived():
            return _arrived(event)
        case CandidateScored():
            return _scored(event)
        case WaveEnded():
            return _waved(event)
        case PassDecided(record=record, reason=reason):
            return {"event": "decision", **pass_body(record).model_dump(), "reason": reason}


def _started(event: Started) -> dict[str, Any]:
    context = event.context
    return {
        "event": "start",
        "request_id": context.request_id,
        "task": context.problem.task,
        "problem_id": context.problem.problem_id,
        "seed": context.seed,
        "policy": context.policy.to_json(),
    }


def _planned(event: PassPlanned) -> dict[str, Any]:
    return {
        "event": "pass",
        "pass": event.pass_index,
        "requested": len(event.plan.asked),
        "feedback": event.feedback,
        "generators": _by_generator(event.plan.asked),
        "over_budget": _by_generator(event.plan.over_budget),
    }


def _by_generator(requests: Iterable[GenerationRequest]) -> dict[str, int]:
    return dict(Counter(request.generator for request in requests))


def _arrived(event: CandidateArrived) -> dict[str, Any]:
    candidate = event.candidate
    return {
        "event": "candidate",
        "pass": candidate.pass_index,
        "done": event.done,
        "total": event.total,
        "generator": candidate.generator,
        "failed": candidate.text is None,
        "candidate_id": candidate.candidate_id,
        "sample_index": candidate.sample_index,
        "error": None if candidate.error is None else redact(candidate.error),
        "late": is_late(candidate),
        **({"text": candidate.text} if event.context.return_candidates else {}),
    }


def _scored(event: CandidateScored) -> dict[str, Any]:
    body = candidate_body(event.scored, event.context.policy.lambda_).model_dump()
    if not event.context.return_candidates:
        body["text"] = None
    return {"event": "scored", "pass": event.scored.candidate.pass_index, "candidate": body}


def _waved(event: WaveEnded) -> dict[str, Any]:
    wave = event.wave
    reason = wave.decision.reason
    return {
        "event": "wave",
        "pass": wave.pass_index,
        "wave": wave.number,
        "num_planned": wave.num_planned,
        "num_samples": wave.num_samples,
        "num_cancelled": wave.num_cancelled,
        "stop_reason": None if reason is None else reason.value,
        "stop_words": wave.decision.words,
    }
