"""Puts the parts for outcomes together from what a service has."""

from raydebm.decisions.outcomes.claims import Claim, ClaimMonitor
from raydebm.decisions.outcomes.log import OutcomeLog
from raydebm.decisions.reader import DecisionReader
from raydebm.decisions.writer import DecisionWriter
from raydebm.serving.api.outcomes.desk import OutcomeDesk
from raydebm.serving.core.meter import Meter
from raydebm.serving.core.service import TriageService
from raydebm.serving.settings.bundle import Bundle


def claim_monitor(bundle: Bundle, meter: Meter) -> ClaimMonitor | None:
    """Watches what is promised about the served policies: what the arguments state (``watch.max_error``), else what
    calibration certified.

    Returns:
        None where decisions are not stored, and so no outcomes.
    """
    records, watch = bundle.records, bundle.watch
    if records is None or records.folder is None:
        return None
    outcomes = OutcomeLog(records.folder)
    claims = {}
    for name, policy in bundle.answering.items():
        promised = policy.guarantee["max_error"] if policy.guarantee and policy.guarantee["certified"] else None
        max_error = promised if watch.max_error is None else watch.max_error
        if max_error is not None:
            claims[name] = Claim(max_error=max_error, by=watch.by)
    return ClaimMonitor(outcomes, claims, on_change=meter.watched)


def outcome_desk(service: TriageService, reader: DecisionReader, claims: ClaimMonitor) -> OutcomeDesk:
    """Takes reports about the decisions that ``reader`` reads."""
    meter, writer = service.meter, service.records
    return OutcomeDesk(
        reader,
        claims,
        check=service.backend.check,
        served=tuple(service.bundle.answering),
        flush=writer.flush if isinstance(writer, DecisionWriter) else None,
        on_report=lambda decision, correct: meter.reported(
            task=decision["task"], decision=decision["decision"], correct=correct
        ),
    )
