"""What a request reuses of earlier equal ones: its candidates' keys in the store, and which of them may be taken.

Equal requests of one caller that run at the same time do not wait for each other: each samples for itself, and the
later one's candidates stay in the store.
Does not know: Ray, HTTP.
"""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from raydebm.errors import ResourceError
from raydebm.identity import content_id
from raydebm.records import Candidate, GenerationRequest
from raydebm.serving.core.request import RequestContext
from raydebm.serving.spending.candidate_store import CandidateStore, ReusedCandidate, ReuseLimits

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Reuse:
    """The reusable candidates of one request's caller. A file that cannot be used costs the reuse, not the request."""

    context: RequestContext
    store: CandidateStore
    limits: ReuseLimits

    async def find(self, requests: Sequence[GenerationRequest]) -> dict[str, ReusedCandidate]:
        """By candidate id, what need not be sampled; nothing where the request wants fresh candidates."""
        if self.context.fresh or not requests:
            return {}
        keys = {self._key(request): request.candidate_id for request in requests}
        owner, max_age_s = self.context.owner, self.limits.max_age_s
        try:
            found = await asyncio.to_thread(self.store.find, owner, list(keys), max_age_s=max_age_s)
        except ResourceError as error:
            _log(error)
            return {}
        return {keys[key]: reused for key, reused in found.items()}

    async def keep(self, requests: Iterable[GenerationRequest], drawn: Iterable[Candidate]) -> None:
        """Keep the texts among what came back; goes on when the caller is cancelled."""
        keys = {request.candidate_id: self._key(request) for request in requests}
        written = {keys[found.candidate_id]: found for found in drawn if found.text is not None}
        if not written:
            return
        try:
            await asyncio.shield(asyncio.to_thread(self.store.keep, self.context.owner, written, limits=self.limits))
        except ResourceError as error:
            _log(error)

    def _key(self, request: GenerationRequest) -> str:
        """The candidate's id and the generator's settings: another model under the same name is another source."""
        configs = {config.name: config for config in self.context.bundle.generator_configs()}
        return content_id(request.candidate_id, configs[request.generator].model_dump(mode="json"), length=40)


def reuse_of(context: RequestContext, store: CandidateStore | None) -> Reuse | None:
    """None where the service reuses nothing."""
    limits = context.bundle.reuse
    return None if store is None or limits is None else Reuse(context, store, limits)


def _log(error: ResourceError) -> None:
    log.warning("candidates are not reused", extra={"facts": {"reason": str(error)}})
