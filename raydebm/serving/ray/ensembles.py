"""The trained ensembles that a scorer replica holds: usually one, two while adapters are exchanged under way.

Every call names the checkpoint that it wants, so energies of one request come from one ensemble, whatever replica
answers and whatever is loaded meanwhile. Torch is imported when something is loaded.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from raydebm.errors import CheckpointError
from raydebm.run.addresses import local_copy
from raydebm.run.ensemble_file import CheckpointRef, read_ref
from raydebm.serving.ray.on_demand import OnDemand

if TYPE_CHECKING:
    from raydebm.scorer.ensemble import EnsembleScorer
    from raydebm.scorer.model.backbone import Backbone

IDLE_S = 600.0
"""An ensemble that was not asked for so long makes room. Longer than any request runs."""


@dataclass(frozen=True, slots=True)
class LoadedEnsemble:
    """An ensemble, and the backbones that it is on."""

    scorer: "EnsembleScorer"
    backbones: "Sequence[Backbone]"


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
        self._device, self._dtype, self._threads = device, dtype, threads
        self._loaded: OnDemand[CheckpointRef, LoadedEnsemble] = OnDemand(self._load, idle_s=IDLE_S, clock=clock)

    @property
    def loaded(self) -> list[LoadedEnsemble]:
        """What is loaded, the one asked for last at the end."""
        return [ensemble for _, ensemble in self._loaded.by_use]

    @property
    def fingerprints(self) -> list[str]:
        """Fingerprints of what is loaded, in the same order."""
        return [ref.fingerprint for ref, _ in self._loaded.by_use]

    @property
    def latest(self) -> "EnsembleScorer":
        """What was asked for last."""
        return self.loaded[-1].scorer

    async def get(self, ref: CheckpointRef) -> "EnsembleScorer":
        """The ensemble, loaded in a thread when it is not there; what is there goes on scoring meanwhile.

        Raises:
            CheckpointError: it cannot be read, or the folder holds another one by now.
        """
        return (await self._loaded.get(ref)).scorer

    def load_now(self, ref: CheckpointRef) -> None:
        """Load in this thread, before the replica takes calls. Raises CheckpointError."""
        self._loaded.put(ref, self._load(ref))

    def _load(self, ref: CheckpointRef) -> LoadedEnsemble:
        import torch

        from raydebm.scorer.checkpoint import read_ensemble
        from raydebm.scorer.ensemble import EnsembleScorer
        from raydebm.scorer.member_groups import load_backbones

        if self._threads is not None:
            torch.set_num_threads(self._threads)
        stored = read_ref(ref.folder)
        if stored != ref:
            raise CheckpointError(
                f"{ref.folder} holds checkpoint {stored.fingerprint} by now, but {ref.fingerprint} is served; give new "
                "adapters a folder of their own and name it in the ingress deployment's user_config"
            )
        with local_copy(ref.folder) as folder:
            record, adapters = read_ensemble(folder)
        known = [backbone for ensemble in self.loaded for backbone in ensemble.backbones]
        backbones = load_backbones(record, device=self._device, dtype=self._dtype, loaded=known)
        return LoadedEnsemble(EnsembleScorer.of_parts(record, adapters, backbones=backbones), backbones)
