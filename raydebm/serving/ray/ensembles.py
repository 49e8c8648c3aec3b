"""The trained ensembles that a scorer replica holds: usually one, two while adapters are exchanged under way.

Every call names the checkpoint that it wants, so energies of one request come from one ensemble, whatever replica
answers and whatever is loaded meanwhile. Torch is imported when something is loaded.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from raydebm.errors import CheckpointError
from raydebm.run.addresses import local_copy
from raydebm.run.ensemble_file import CheckpointRef, read_ref

if TYPE_CHECKING:
    from raydebm.scorer.ensemble import EnsembleScorer
    from raydebm.scorer.model.backbone import Backbone

IDLE_S = 600.0
"""An ensemble that was not asked for so long makes room. Longer than any request runs."""


@dataclass(slots=True)
class _Held:
    scorer: "EnsembleScorer"
    backbones: "Sequence[Backbone]"
    asked_at: float


class Ensembles:
    """Loads checkpoints, several on one backbone where they share it, and lets idle ones go.

    Each backbone is in memory once, however many ensembles and members have it, and goes with the last of them.
    """

    def __init__(
        self,
        *,
        device: str = "auto",
        dtype: str = "auto",
        threads: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        Args:
            device: as ``EnsembleScorer.load`` has it; so are dtype and threads.
            clock: seconds, for what is idle.
        """
        self._device, self._dtype, self._threads, self._clock = device, dtype, threads, clock
        self._held: dict[CheckpointRef, _Held] = {}
        self._loading = asyncio.Lock()

    @property
    def fingerprints(self) -> list[str]:
        """Fingerprints of what is loaded, the one asked for last at the end."""
        return [ref.fingerprint for ref, _ in sorted(self._held.items(), key=lambda item: item[1].asked_at)]

    @property
    def latest(self) -> "EnsembleScorer":
        """What was asked for last."""
        return max(self._held.values(), key=lambda held: held.asked_at).scorer

    async def get(self, ref: CheckpointRef) -> "EnsembleScorer":
        """The ensemble, loaded in a thread when it is not there; what is there goes on scoring meanwhile.

        Raises:
            CheckpointError: it cannot be read, or the folder holds another one by now.
        """
        if ref not in self._held:
            async with self._loading:
                if ref not in self._held:
                    self._held[ref] = await asyncio.to_thread(self._load, ref)
        held = self._held[ref]
        held.asked_at = self._clock()
        self._release(keep=ref)
        return held.scorer

    def load_now(self, ref: CheckpointRef) -> None:
        """Load in this thread, before the replica takes calls. Raises CheckpointError."""
        self._held[ref] = self._load(ref)

    def _release(self, keep: CheckpointRef) -> None:
        now = self._clock()
        idle = [ref for ref, held in self._held.items() if ref != keep and now - held.asked_at > IDLE_S]
        for ref in idle:
            del self._held[ref]

    def _load(self, ref: CheckpointRef) -> _Held:
        import torch

        from raydebm.scorer.checkpoint import read_ensemble
        from raydebm.scorer.ensemble import EnsembleScorer
        from raydebm.scorer.member_groups import load_backbones

        if self._threads is not None:
            torch.set_num_threads(self._threads)
        found = read_ref(ref.folder)
        if found != ref:
            raise CheckpointError(
                f"{ref.folder} holds checkpoint {found.fingerprint} by now, but {ref.fingerprint} is served; give new "
                "adapters a folder of their own and name it in the ingress deployment's user_config"
            )
        with local_copy(ref.folder) as folder:
            record, adapters = read_ensemble(folder)
        known = [backbone for held in self._held.values() for backbone in held.backbones]
        backbones = load_backbones(record, device=self._device, dtype=self._dtype, loaded=known)
        return _Held(EnsembleScorer.of_parts(record, adapters, backbones=backbones), backbones, self._clock())
