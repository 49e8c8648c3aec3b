"""The parts behind the service, as a protocol: remote ones in production, plain objects in tests.

Does not know: Ray, HTTP.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from raydebm.decision.sampling.one_pass import Arrived
from raydebm.records import Candidate, ConstraintReport, Energies, GenerationRequest, Problem
from raydebm.scorer.texts import TextToScore
from raydebm.service.settings.bundle import Bundle


class Backend(Protocol):
    """The parts behind the service. Each call takes a list, because a call to another replica costs milliseconds."""

    async def generate(
        self, requests: Sequence[GenerationRequest], on_candidate: Arrived, *, may_repeat: bool
    ) -> list[Candidate]:
        """One candidate per request, in order; failed ones have ``error``.

        Args:
            requests: generation requests.
            on_candidate: callback for each candidate as it arrives.
            may_repeat: permission to resend a request that may already be billed.
        """
        ...

    async def check(self, problem: Problem, candidates: Sequence[Candidate]) -> list[ConstraintReport]:
        """One report per candidate, in order, from the task's gold-free checks."""
        ...

    async def score(self, texts: Sequence[TextToScore]) -> list[Energies | None]:
        """Energies per text, in order; None for a text that could not be scored."""
        ...

    async def baseline_scores(self, texts: Sequence[TextToScore]) -> list[Mapping[str, float]]:
        """Scores by baseline name per text, in order, from the baselines that are evidence."""
        ...

    def serving(self, bundle: Bundle) -> "Backend":
        """The same backend for another run: its generators, checks and adapters."""
        ...

    async def status(self) -> dict[str, Any]:
        """Loaded models and state of each part.

        Raises:
            ServiceError: a part is not available.
        """
        ...
