"""Bets on one guarantee, which outlive their outcomes.

In:   the stored outcomes, as ``Bet``s.
Out:  ``ClaimBets.watch``, one martingale from the first outcome on; JSON to resume it.
Does not know: files, clocks.

The oldest outcomes are removed after a while. A martingale over the rest would restart at each removal, and its false
alarms would add up. So the bets on removed outcomes stay in ``base``, with their alarms. Stored outcomes are bet on
again, from there on, only if one of their reports was replaced.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

from raydebm.decision.guarantee.watch import ErrorWatch
from raydebm.errors import ConfigError


class Bet(NamedTuple):
    """An answered problem, with the outcome of one request."""

    outcome_id: str
    """Id of the oldest stored report on the request."""
    record_id: str
    """Id of the decision."""
    wrong: bool
    """Verdict of the latest report on the request."""
    problem: str
    """Problem key, equal for repeated questions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimBets:
    """All bets so far."""

    base: ErrorWatch
    """State after the outcomes that have been removed."""
    watch: ErrorWatch
    """State after all outcomes."""
    known: Mapping[str, Bet] = field(default_factory=dict)
    """Stored outcomes by problem, in the order of their bets."""
    settled: str = ""
    """Outcomes up to this id are in ``base``, except for ``known`` ones; they are not new if they reappear."""
    last: str = ""
    """Highest outcome id so far."""

    @classmethod
    def begun(cls, watch: ErrorWatch) -> Self:
        """State before the first outcome."""
        return cls(base=watch, watch=watch)

    def after(self, kept: Sequence[Bet]) -> "ClaimBets":
        """The bets after an update.

        Args:
            kept: all stored outcomes, one per problem, in order of arrival.
        """
        now = {bet.problem: bet for bet in kept}
        gone = [bet for name, bet in self.known.items() if name not in now]
        left = {name: bet for name, bet in self.known.items() if name in now}
        base = self.base.after_all(bet.wrong for bet in gone)
        settled = max([self.settled, *(bet.outcome_id for bet in gone)])
        corrected = {name: _corrected(bet, now[name]) for name, bet in left.items()}
        watch = self.watch if corrected == left else base.after_all(bet.wrong for bet in corrected.values())
        new = {name: bet for name, bet in now.items() if name not in left and bet.outcome_id > settled}
        return ClaimBets(
            base=base,
            watch=watch.after_all(bet.wrong for bet in new.values()),
            known=corrected | new,
            settled=settled,
            last=max([self.last, *(bet.outcome_id for bet in kept)]),
        )

    def to_json(self) -> dict[str, Any]:
        """State for ``resumed``, in addition to the stored outcomes."""
        watches = {"base": self.base.to_json(), "watch": self.watch.to_json()}
        return {**watches, "settled": self.settled, "last": self.last}

    @classmethod
    def resumed(cls, value: Mapping[str, Any], kept: Sequence[Bet]) -> Self:
        """Restore the bets from ``to_json`` and those of their outcomes that are still stored.

        If outcomes were removed meanwhile, their individual bets are unknown, and all bets so far become ``base``.

        Raises:
            ConfigError: a key is missing or has an invalid value.
        """
        try:
            base, watch = ErrorWatch.from_json(value["base"]), ErrorWatch.from_json(value["watch"])
            settled, last = str(value["settled"]), str(value["last"])
        except (KeyError, TypeError) as error:
            raise ConfigError(f"the state of a claim's bets cannot be read ({error!r})") from error
        known = {bet.problem: bet for bet in kept if settled < bet.outcome_id <= last}
        if len(known) != watch.num - base.num:
            return cls(base=watch, watch=watch, settled=last, last=last)
        again = base.after_all(bet.wrong for bet in known.values())
        watch = watch if again.num_wrong == watch.num_wrong else again  # a report was replaced meanwhile
        return cls(base=base, watch=watch, known=known, settled=settled, last=last)


def _corrected(bet: Bet, now: Bet) -> Bet:
    """The bet with the verdict of the current reports, or its own if those are gone."""
    return bet._replace(wrong=now.wrong) if now.record_id == bet.record_id else bet
