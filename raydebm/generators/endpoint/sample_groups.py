"""Samples of one prompt that go out as one request with ``n``.

Rules:

1. requests belong together when they differ in seed and sample number alone;
2. a request with ``n`` has no seed: a server that took it for each choice would write the same text ``n`` times;
3. a choice that an endpoint leaves out is asked for singly. An endpoint that gives one choice where several are asked
   for, or that refuses a request whose samples it then answers singly, is asked singly from then on;
4. what was billed for a request with ``n`` is divided among its candidates, so that sums stay what they are.

Pure. Does not know: HTTP, configurations.
"""

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

from raydebm.generators.replies import ReplyError
from raydebm.records import GenerationRequest

T = TypeVar("T")
Group = tuple[GenerationRequest, ...]
"""Requests that are sent as one."""

_MAY_MEAN_N = frozenset({400, 404, 422})
"""Statuses by which endpoints refuse a parameter. Nothing is billed for them."""


def grouped(requests: Iterable[GenerationRequest], size: int) -> list[Group]:
    """Requests in groups of at most ``size`` that belong together; groups and their members keep their order."""
    return grouped_by(requests, lambda request: request, size)


def grouped_by(entries: Iterable[T], request_of: Callable[[T], GenerationRequest], size: int) -> list[tuple[T, ...]]:
    """``grouped`` for what contains requests."""
    if size == 1:
        return [(entry,) for entry in entries]
    groups: list[list[T]] = []
    unfilled: dict[Hashable, list[T]] = {}
    for entry in entries:
        group = unfilled.get(key := _shared_part(request_of(entry)))
        if group is None or len(group) == size:
            groups.append(group := [])
            unfilled[key] = group
        group.append(entry)
    return list(map(tuple, groups))


def _shared_part(request: GenerationRequest) -> Hashable:
    """What is the same in requests that belong together."""
    messages = tuple(tuple(sorted(message.items())) for message in request.messages)
    origin = (request.task, request.problem_id, request.generator, request.pass_index)
    return origin, messages, request.sampling, request.response_format


class GroupSize:
    """How many samples one endpoint is asked for at once; learns whether it honours ``n``."""

    def __init__(self, wanted: int) -> None:
        self.now = wanted
        self._doubted: set[str] = set()
        """Ids of samples that were refused together."""

    def note_choices(self, num_asked: int, num_given: int) -> bool:
        """A reply had so many of the choices that were asked for. Returns whether ``n`` is given up by it."""
        return self._give_up() if num_given == 1 < num_asked else False

    def may_be_to_blame(self, group: Group, error: Exception) -> bool:
        """Whether a failed group should be asked singly."""
        if len(group) == 1 or not isinstance(error, ReplyError) or error.status not in _MAY_MEAN_N:
            return False
        self._doubted.update(request.candidate_id for request in group)
        return True

    def note_single_answer(self, request: GenerationRequest) -> bool:
        """A sample was answered that was sent singly. Returns whether ``n`` is given up by it."""
        return self._give_up() if request.candidate_id in self._doubted else False

    def _give_up(self) -> bool:
        is_new, self.now = self.now > 1, 1
        return is_new


def amount_shares(total: float, weights: Sequence[float]) -> list[float]:
    """An amount in parts by their weights, which add up to it again; in equal parts where nothing has weight."""
    whole = math.fsum(weights)
    parts = [total * weight / whole if whole else total / len(weights) for weight in weights[1:]]
    return [max(0.0, total - math.fsum(parts)), *parts]
