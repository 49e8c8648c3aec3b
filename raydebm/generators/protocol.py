"""The interface of all generators."""

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from raydebm.records import Candidate, GenerationRequest


class Generator(Protocol):
    """A source of candidates, such as an endpoint, a local model or a recorded pool."""

    name: str

    def stream(self, requests: Sequence[GenerationRequest]) -> AsyncIterator[Candidate]:
        """Yield exactly one candidate per request, as soon as it is complete. A failed request is a candidate with
        ``error``."""
        ...

    async def aclose(self) -> None:
        """Free connections and models."""
        ...


async def collect(generator: Generator, requests: Sequence[GenerationRequest]) -> list[Candidate]:
    """The candidates of all requests, in the order of the requests."""
    by_id = {candidate.candidate_id: candidate async for candidate in generator.stream(requests)}
    return [by_id[request.candidate_id] for request in requests]
