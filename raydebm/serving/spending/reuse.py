"""What a request reuses of earlier equal ones: its candidates' keys in the store, and which of them may be taken.

Equal requests of one caller that run at the same time do not wait for each other: each samples for itself, and the
later one's candidates stay in the store.
Does not know: Ray, HTTP.
"""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from raydebm.config import GeneratorConfig
from raydebm.errors import ResourceError
from raydebm.identity import content_id
from raydebm.records import Candidate, GenerationRequest
from raydebm.serving.spending.candidate_store import CandidateStore, ReusedCandidate, ReuseLimits

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reuse:
    """The reusable candidates of one request's caller. A file that cannot be used costs the reuse, not the request."""

    store: CandidateStore
    limits: ReuseLimits
    owner: str
    """Whose candidates these are; see ``CandidateStore``."""
    generators: Sequence[GeneratorConfig]
    """Every generator that the request may ask."""
    fresh: bool = False
    """Whether the request wants every candidate sampled; what comes is kept all the same."""

    async def find(self, requests: Sequence[GenerationRequest]) -> dict[str, ReusedCandidate]:
        """By candidate id, what need not be sampled; nothing where the request wants fresh candidates."""
        if self.fresh or not requests:
            return {}
        keys = {self._key(request): request.candidate_id for request in requests}
        find, max_age_s = self.store.find, self.limits.max_age_s
        try:
            by_key = await asyncio.to_thread(find, self.owner, list(keys), max_age_s=max_age_s)
        except ResourceError as error:
            _log(error)
            return {}
        return {keys[key]: reused for key, reused in by_key.items()}

    async def keep(self, requests: Iterable[GenerationRequest], drawn: Iterable[Candidate]) -> None:
        """Keep the texts among what came back; goes on when the caller is cancelled."""
        keys = {request.candidate_id: self._key(request) for request in requests}
        written = {
            keys[candidate.candidate_id]: candidate
            for candidate in drawn
            if candidate.text is not None and candidate.candidate_id in keys
        }
        if not written:
            return
        try:
            await asyncio.shield(asyncio.to_thread(self.store.keep, self.owner, written, limits=self.limits))
        except ResourceError as error:
            _log(error)

    def _key(self, request: GenerationRequest) -> str:
        """The candidate's id and the generator's settings: another model under the same name is another source."""
        configs = {config.name: config for config in self.generators}
        return content_id(request.candidate_id, configs[request.generator].model_dump(mode="json"), length=40)


def _log(error: ResourceError) -> None:
    log.warning("candidates are not reused", extra={"facts": {"reason": str(error)}})
