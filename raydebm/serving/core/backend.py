"""The parts behind the service, as a protocol: remote ones in production, plain objects in tests.

Does not know: Ray, HTTP.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from raydebm.decision.sampling.one_pass import Arrived
from raydebm.records import Candidate, ConstraintReport, Energies, GenerationRequest, Problem
from raydebm.scorer.texts import TextToScore
from raydebm.serving.settings.bundle import Bundle


class Backend(Protocol):
    """The parts behind the service. Each call takes one list, because a call to another replica costs
    milliseconds."""

    async def generate(
        self, requests: Sequence[GenerationRequest], on_candidate: Arrived, *, may_repeat: bool
    ) -> list[Candidate]:
        """One candidate per request, in their order; failed ones carry ``error``.

        Args:
            requests: what to draw.
            on_candidate: called as each candidate arrives.
            may_repeat: whether a request that may be billed already may be sent again.
        """
        ...

    async def check(self, problem: Problem, candidates: Sequence[Candidate]) -> list[ConstraintReport]:
        """One report per candidate, in their order, by the task's gold-free checks."""
        ...

    async def score(self, texts: Sequence[TextToScore]) -> list[Energies | None]:
        """One per text, in their order; None for one that could not be scored."""
        ...

    async def baseline_scores(self, texts: Sequence[TextToScore]) -> list[Mapping[str, float]]:
        """Scores by name per text, in their order, of the baselines that are evidence."""
        ...

    def serving(self, bundle: Bundle) -> "Backend":
        """The same parts for another run: its generators, its task's checks and its adapters."""
        ...

    async def status(self) -> dict[str, Any]:
        """What is loaded.

        Raises:
            ServiceError: a part is not there (yet).
        """
        ...
