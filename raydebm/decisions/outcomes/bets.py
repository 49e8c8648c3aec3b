"""The bets on one promise, which outlive the outcomes that they were made on.

In:   the outcomes that are kept, as ``Bet``s.
Out:  ``ClaimBets.watch``, one martingale from the first outcome on; JSON from which it is resumed.
Does not know: files, clocks.

The oldest outcomes are removed after a while. A martingale over those that are left would begin again at each removal,
and its false alarms would add up. So what was bet on a removed outcome stays in ``base``, and an alarm that it raised
stays. The outcomes that are kept are bet on again, from there on, only where one of their reports was replaced.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

from raydebm.decision.guarantee.watch import ErrorWatch
from raydebm.errors import ConfigError


class Bet(NamedTuple):
    """A problem that was answered, with the outcome of one request."""

    outcome_id: str
    """First report about the request that is kept."""
    record_id: str
    """The request."""
    wrong: bool
    """By the last report about the request."""
    problem: str
    """The same where it is asked again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimBets:
    """What was bet so far."""

    base: ErrorWatch
    """After the outcomes that are no longer kept."""
    watch: ErrorWatch
    """After all outcomes."""
    known: Mapping[str, Bet] = field(default_factory=dict)
    """By problem: outcomes that are kept, in the order of the bets on them."""
    settled: str = ""
    """Outcomes up to this id are in ``base``, but for those that are known: one that turns up again is no new one."""
    last: str = ""
    """The highest outcome id so far."""

    @classmethod
    def begun(cls, watch: ErrorWatch) -> Self:
        """Before the first outcome."""
        return cls(base=watch, watch=watch)

    def after(self, kept: Sequence[Bet]) -> "ClaimBets":
        """The bets after a further look.

        Args:
            kept: all outcomes that are kept, one for each problem, in the order of arrival.
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
        """What ``resumed`` needs next to the outcomes that are kept."""
        watches = {"base": self.base.to_json(), "watch": self.watch.to_json()}
        return {**watches, "settled": self.settled, "last": self.last}

    @classmethod
    def resumed(cls, value: Mapping[str, Any], kept: Sequence[Bet]) -> Self:
        """The bets as ``to_json`` left them, with those outcomes that they rest on and that are still kept.

        Where outcomes were removed meanwhile, it is not known what had been bet on each, and all bets so far become
        ``base``.

        Raises:
            ConfigError: a key is missing, or has a value that no state has.
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
    """The bet with the verdict of the present reports; where those about its request are gone, with its own."""
    return bet._replace(wrong=now.wrong) if now.record_id == bet.record_id else bet
