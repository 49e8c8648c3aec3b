"""A typed client for the raydebm service, for everything outside OpenAI's API.

    from raydebm_client import Raydebm

    with Raydebm("http://127.0.0.1:8000") as raydebm: found = raydebm.triage("...", return_candidates=True)
    print(found.decision, found.answer, found.sigma)

``Raydebm`` is blocking, ``AsyncRaydebm`` is for asyncio; both have the same methods. For chat, use any OpenAI client.
The only dependency is httpx.
"""

from raydebm_client.client import AsyncRaydebm, Raydebm
from raydebm_client.results import Progress, Result, ServiceError, TriageResult

__version__ = "1.0.0"

__all__ = ["AsyncRaydebm", "Progress", "Raydebm", "Result", "ServiceError", "TriageResult"]
