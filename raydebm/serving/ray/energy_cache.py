"""Energies that a scorer replica has already computed, so that equal texts of different requests are scored once.

Entries belong to one checkpoint: another one never finds them, and they go when its ensemble does.
Does not know: torch, Ray.
"""

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass, replace

from raydebm.records import Energies
from raydebm.scorer.texts import TextToScore


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
