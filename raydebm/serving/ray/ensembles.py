"""The trained ensembles that a scorer replica holds: usually one, two while adapters are exchanged under way.

Every call names the checkpoint that it wants, so energies of one request come from one ensemble, whatever replica
answers and whatever is loaded meanwhile. Torch is imported when something is loaded.
"""

import asyncio
import hashlib
import threading
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Generic, TypeVar

from raydebm.errors import CheckpointError
from raydebm.records import Energies
from raydebm.run.addresses import local_copy
from raydebm.run.ensemble_file import CheckpointRef, read_ref
from raydebm.scorer.texts import TextToScore

Key = TypeVar("Key")
Value = TypeVar("Value")


@dataclass(slots=True)
class _Asked(Generic[Value]):
    value: Value
    asked_at: float


class OnDemand(Generic[Key, Value]):
    """Loaded values by key. Belongs to one event loop."""

    def __init__(
        self,
        load: Callable[[Key], Value],
        *,
        idle_s: float,
        close: Callable[[Value], Awaitable[None]] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        Args:
            load: may take long; is called in a thread, once at a time.
            idle_s: seconds after which a value that was not asked for makes room; longer than any use of one.
            close: for values that make room; None: they are dropped.
            clock: seconds.
        """
        self._load, self._idle_s, self._close, self._clock = load, idle_s, close, clock
        self._loaded: dict[Key, _Asked[Value]] = {}
        self._loading = asyncio.Lock()

    @property
    def by_use(self) -> list[tuple[Key, Value]]:
        """What is loaded, the one asked for last at the end."""
        ordered = sorted(self._loaded.items(), key=lambda entry: entry[1].asked_at)
        return [(key, loaded.value) for key, loaded in ordered]

    def put(self, key: Key, value: Value) -> None:
        """Take a value that was loaded elsewhere, as if it had just been asked for."""
        self._loaded[key] = _Asked(value, self._clock())

    async def get(self, key: Key) -> Value:
        """The value, loaded where it is not there; what is there stays in use meanwhile. Errors of ``load`` pass."""
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


@dataclass(frozen=True, slots=True)
class CacheCounts:
    """What became of the lookups, since the replica started."""

    hits: int
    misses: int


class EnergyCache:
    """Energies by checkpoint, problem and candidate; the least recently used ones go first. For several threads."""

    def __init__(self, max_texts: int) -> None:
        """
        Args:
            max_texts: kept at most; 0: none.
        """
        self._max_texts = max_texts
        self._entries: OrderedDict[tuple[str, bytes], Energies] = OrderedDict()
        self._held: frozenset[str] | None = None
        """Checkpoints of the ensembles that are held; None: not said yet."""
        self._lock = threading.Lock()
        self._hits = self._misses = 0

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def counts(self) -> CacheCounts:
        """How often a text was found, and how often not."""
        return CacheCounts(self._hits, self._misses)

    def find(self, checkpoint: str, text: TextToScore) -> Energies | None:
        """The energies of the text, under its own candidate's id; None: not known."""
        key = (checkpoint, _digest(text))
        with self._lock:
            energies = self._entries.get(key)
            if energies is None:
                self._misses += 1
                return None
            self._hits += 1
            self._entries.move_to_end(key)
        return replace(energies, candidate_id=text.candidate_id)

    def keep(self, checkpoint: str, text: TextToScore, energies: Energies) -> None:
        """Remember the energies of a text, and evict the oldest ones beyond the bound. Those of a checkpoint that went
        while they were computed are not kept."""
        with self._lock:
            if self._max_texts and (self._held is None or checkpoint in self._held):
                self._entries[checkpoint, _digest(text)] = energies
            while len(self._entries) > self._max_texts:
                self._entries.popitem(last=False)

    def evict_all_but(self, checkpoints: Collection[str]) -> None:
        """Forget what belongs to ensembles that are no longer held. Costs nothing while they are the same."""
        held = frozenset(checkpoints)
        with self._lock:
            if held == self._held:
                return
            self._held = held
            for key in [key for key in self._entries if key[0] not in checkpoints]:
                del self._entries[key]


def _digest(text: TextToScore) -> bytes:
    """Digest of problem and candidate; the length keeps ("ab", "c") apart from ("a", "bc")."""
    prompt, candidate = (part.encode("utf-8", "surrogatepass") for part in (text.prompt, text.text))
    return hashlib.blake2b(len(prompt).to_bytes(8, "big") + prompt + candidate, digest_size=16).digest()


if TYPE_CHECKING:
    from raydebm.scorer.ensemble import EnsembleScorer
    from raydebm.scorer.model.backbone import Backbone

IDLE_S = 600.0
"""An ensemble that was not asked for so long makes room. Longer than any request runs."""


@dataclass(frozen=True, slots=True)
class LoadedEnsemble:
    """An ensemble, and the backbone that it is on."""

    scorer: "EnsembleScorer"
    backbone: "Backbone"


class Ensembles:
    """Loads checkpoints, several on one backbone where they share it, and lets idle ones go.

    Each backbone is in memory once, however many ensembles have it, and goes with the last of them.
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
        from raydebm.scorer.ensemble import EnsembleScorer, backbone_for

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
        known = [ensemble.backbone for ensemble in self.loaded]
        backbone = backbone_for(record, device=self._device, dtype=self._dtype, loaded=known)
        return LoadedEnsemble(EnsembleScorer.of_parts(record, adapters, backbone=backbone), backbone)
