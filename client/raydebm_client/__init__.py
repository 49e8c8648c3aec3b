"""A small client for the raydebm service: what OpenAI's shape cannot carry, typed.

    from raydebm_client import Raydebm

    with Raydebm("http://127.0.0.1:8000") as raydebm:
        found = raydebm.triage("...", return_candidates=True)
        print(found.decision, found.answer, found.sigma)

``Raydebm`` blocks, ``AsyncRaydebm`` awaits; both have the same methods. Chat goes through any OpenAI client instead.
The only dependency is httpx.
"""

from raydebm_client.asynchronous import AsyncRaydebm
from raydebm_client.errors import ServiceError
from raydebm_client.results import (
    CandidateResult,
    OutcomeResult,
    Progress,
    RankedDocument,
    RerankResult,
    ScoredText,
    ScoreResult,
    TriageResult,
)
from raydebm_client.synchronous import Raydebm

__version__ = "0.2.0"

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
