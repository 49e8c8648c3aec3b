"""Which batches a run has sent, in a folder next to its journal, so that a run that was killed finds them again.

One JSON file per batch: first what is to be sent, then the batch's id, at last that its results were read. Between the
first two a kill leaves a file without an id; whether that batch exists is up to the provider's list, by its digest.

Does not know: HTTP.
"""

import logging
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass, replace

from raydebm.run.folder import Folder

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchState:
    """One batch of a generator."""

    generator: str
    base_url: str
    digest: str
    custom_ids: tuple[str, ...]
    """Those whose results were not read yet."""
    worst_usd: float = 0.0
    batch_id: str | None = None
    """None until the provider has said it."""
    is_read: bool = False
    """Whether all results were read; a further batch for the same requests is then another one."""
    number: int = 0
    """Counts the batches with the same digest."""


class BatchStates:
    """The batches of one generator at one endpoint."""

    def __init__(self, folder: Folder, *, generator: str, base_url: str) -> None:
        self._folder, self._generator, self._base_url = folder, generator, base_url

    def unread(self) -> list[BatchState]:
        """Batches whose results were not read yet, the oldest file name first."""
        return [state for state in self._all() if not state.is_read]

    def read_ids(self) -> set[str]:
        """Ids of the batches whose results were read."""
        return {state.batch_id for state in self._all() if state.is_read and state.batch_id is not None}

    def begin(self, digest: str, custom_ids: tuple[str, ...], *, worst_usd: float) -> BatchState:
        """Write down what is about to be sent.

        Raises:
            OSError: the disk is full or gone.
        """
        number = 1 + max((state.number for state in self._all() if state.digest == digest), default=-1)
        state = BatchState(
            generator=self._generator,
            base_url=self._base_url,
            digest=digest,
            custom_ids=custom_ids,
            worst_usd=worst_usd,
            number=number,
        )
        self._write(state)
        return state

    def note_id(self, state: BatchState, batch_id: str) -> BatchState:
        """Write down the provider's id."""
        named = replace(state, batch_id=batch_id)
        self._write(named)
        return named

    def note_read(self, state: BatchState, custom_ids: Collection[str]) -> None:
        """Write down that the results of these requests were read; those of others may be asked for later."""
        left = tuple(custom_id for custom_id in state.custom_ids if custom_id not in custom_ids)
        self._write(replace(state, is_read=not left, custom_ids=left))

    def forget(self, state: BatchState) -> None:
        """Remove a batch that the provider does not have."""
        self._folder.remove(_name(state))

    def _write(self, state: BatchState) -> None:
        self._folder.write_json(asdict(state), _name(state))

    def _all(self) -> Iterator[BatchState]:
        for name in self._folder.names():
            if not name.endswith(".json"):
                continue
            try:
                entry = self._folder.read_json(name)
                state = BatchState(**entry | {"custom_ids": tuple(entry["custom_ids"])})
            except (ValueError, KeyError, TypeError) as error:
                _LOG.warning("state of a batch %s is ignored, it may be sent again: %r", self._folder.uri(name), error)
                continue
            if (state.generator, state.base_url) == (self._generator, self._base_url):
                yield state


def _name(state: BatchState) -> str:
    return f"{state.digest}-{state.number}.json"
