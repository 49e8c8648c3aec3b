"""Ensembles loaded in a scorer replica: usually one, two during an exchange of adapters.

Every call names its checkpoint, so energies of one request come from one ensemble, regardless of the replica and of
reloads. Torch is imported on the first load.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from raydebm.errors import CheckpointError
from raydebm.run.addresses import local_copy
from raydebm.run.ensemble_file import CheckpointRef, read_ref

Key = TypeVar("Key")
Value = TypeVar("Value")


@dataclass(slots=True)
class _Asked(Generic[Value]):
    value: Value
    asked_at: float


class OnDemand(Generic[Key, Value]):
    """Cache of loaded values by key, for one event loop."""

    def __init__(
        self,
        load: Callable[[Key], Value],
        *,
        idle_s: float,
        close: Callable[[Value], Awaitable[None]] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Args:
        load: loader, called in a thread, one call at a time.
        idle_s: seconds after which an unused value may be dropped; longer than any use of a value.
        close: cleanup of dropped values. Default: none.
        clock: time in seconds.
        """
        self._load, self._idle_s, self._close, self._clock = load, idle_s, close, clock
        self._loaded: dict[Key, _Asked[Value]] = {}
        self._loading = asyncio.Lock()

    @property
    def by_use(self) -> list[tuple[Key, Value]]:
        """Loaded values, the most recently used last."""
        ordered = sorted(self._loaded.items(), key=lambda entry: entry[1].asked_at)
        return [(key, loaded.value) for key, loaded in ordered]

    def put(self, key: Key, value: Value) -> None:
        """Add a value that was loaded elsewhere, as if just used."""
        self._loaded[key] = _Asked(value, self._clock())

    async def get(self, key: Key) -> Value:
        """The value, loaded if necessary; loaded values remain usable meanwhile. Errors of ``load`` propagate."""
        if key not in self._loaded:
            async with self._loading:
                if key not in self._loaded:
                    self.put(key, await asyncio.to_thread(self._load, key))
        loaded = self._loaded[key]
        loaded.asked_at = self._clock()
        await self._let_go(keep=key)
        return loaded.value

    async def _let_go(self, keep: Key) -> None:
        now = self._clock()
        idle = [key for key, loaded in self._loaded.items() if key != keep and now - loaded.asked_at > self._idle_s]
        for loaded in [self._loaded.pop(key) for key in idle]:
            if self._close is not None:
                await self._close(loaded.value)


if TYPE_CHECKING:
    from raydebm.scorer.ensemble import EnsembleScorer
    from raydebm.scorer.model.backbone import Backbone

IDLE_S = 600.0
"""Seconds until an unused ensemble may be unloaded. Longer than any request runs."""


@dataclass(frozen=True, slots=True)
class LoadedEnsemble:
    """An ensemble and its backbone."""

    scorer: "EnsembleScorer"
    backbone: "Backbone"


class Ensembles:
    """Load checkpoints, several on one backbone if they share it, and unload idle ones.

    Each backbone is in memory once, regardless of the number of its ensembles, and is unloaded with the last of them.
    """

    def __init__(
        self,
        *,
        device: str = "auto",
        dtype: str = "auto",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Args:
        device: as in ``EnsembleScorer.load``, like dtype.
        clock: time in seconds, for idle ensembles.
        """
        self._device, self._dtype = device, dtype
        self._loaded: OnDemand[CheckpointRef, LoadedEnsemble] = OnDemand(self._load, idle_s=IDLE_S, clock=clock)

    @property
    def loaded(self) -> list[LoadedEnsemble]:
        """Loaded ensembles, the most recently used last."""
        return [ensemble for _, ensemble in self._loaded.by_use]

    @property
    def fingerprints(self) -> list[str]:
        """Fingerprints of the loaded ensembles, in the same order."""
        return [ref.fingerprint for ref, _ in self._loaded.by_use]

    @property
    def latest(self) -> "EnsembleScorer":
        """The most recently used ensemble."""
        return self.loaded[-1].scorer

    async def get(self, ref: CheckpointRef) -> "EnsembleScorer":
        """The ensemble, loaded in a thread if necessary; loaded ones go on scoring meanwhile.

        Raises:
            CheckpointError: it cannot be read, or the folder now has another one.
        """
        return (await self._loaded.get(ref)).scorer

    def load_now(self, ref: CheckpointRef) -> None:
        """Load in this thread, before the replica takes calls. Raises CheckpointError."""
        self._loaded.put(ref, self._load(ref))

    def _load(self, ref: CheckpointRef) -> LoadedEnsemble:
        from raydebm.scorer.checkpoint import read_ensemble
        from raydebm.scorer.ensemble import EnsembleScorer, backbone_for

        stored = read_ref(ref.folder)
        if stored != ref:
            raise CheckpointError(
                f"{ref.folder} now contains checkpoint {stored.fingerprint}, but {ref.fingerprint} is served; put "
                "new adapters into a separate folder and name it in the ingress deployment's user_config"
            )
        with local_copy(ref.folder) as folder:
            record, adapters = read_ensemble(folder)
        known = [ensemble.backbone for ensemble in self.loaded]
        backbone = backbone_for(record, device=self._device, dtype=self._dtype, loaded=known)
        return LoadedEnsemble(EnsembleScorer.of_parts(record, adapters, backbone=backbone), backbone)
