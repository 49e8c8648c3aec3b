"""A small client for the triage service: what OpenAI's shape cannot carry, typed.

    from raydebm.client import Raydebm

    with Raydebm("http://127.0.0.1:8000") as raydebm:
        found = raydebm.triage("...", return_candidates=True)
        print(found.decision, found.answer, found.sigma)

``Raydebm`` blocks, ``AsyncRaydebm`` awaits; both have the same methods. Chat goes through any OpenAI client instead.
Imports neither Ray nor torch.
"""

from raydebm.client.asynchronous import AsyncRaydebm
from raydebm.client.results import (
    CandidateResult,
    OutcomeResult,
    Progress,
    RankedDocument,
    RerankResult,
    ScoredText,
    ScoreResult,
    TriageResult,
)
from raydebm.client.synchronous import Raydebm
from raydebm.errors import ServiceError

__all__ = [
    "AsyncRaydebm",
    "CandidateResult",
    "OutcomeResult",
    "Progress",
    "RankedDocument",
    "Raydebm",
    "RerankResult",
    "ScoreResult",
    "ScoredText",
    "ServiceError",
    "TriageResult",
]
