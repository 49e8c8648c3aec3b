"""What the service writes down about one request: the one place where requests become stored decisions."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from raydebm.records import Outcome
from raydebm.serving.asking import Ask
from raydebm.serving.decisions.record import DecisionRecord, new_record_id
from raydebm.serving.parts import Watch


def decision_record(
    ask: Ask, outcome: Outcome, watch: Watch, *, elapsed_ms: float, versions: Mapping[str, str]
) -> DecisionRecord:
    """Refers to the outcome and copies nothing: rows are made later, off the request path."""
    now = datetime.now(UTC)
    kept = {scored.candidate.candidate_id for scored in outcome.pool}
    return DecisionRecord(
        record_id=new_record_id(now),
        time=now,
        request_id=ask.request_id,
        outcome=outcome,
        policy=ask.policy,
        seed=ask.seed,
        scored_prompt=None if ask.scored_prompt == ask.problem.prompt else ask.scored_prompt,
        request=_request(ask),
        versions=versions,
        latency_ms=elapsed_ms,
        stages_ms=dict(watch.stages_ms),
        lost=tuple(candidate for candidate in watch.drawn if candidate.candidate_id not in kept),
    )


def _request(ask: Ask) -> dict[str, Any]:
    asked = {
        "generators": list(ask.generators),
        "num_samples": ask.num_samples,
        "sampling": ask.sampling.model_dump(mode="json", exclude_none=True),
        "context": [dict(message) for message in ask.context],
        "response_format": ask.response_format,
    }
    return {name: value for name, value in asked.items() if value not in (None, [], {})}
