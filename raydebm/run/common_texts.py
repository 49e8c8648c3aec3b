"""Counts of common texts, in bounded memory."""

from collections import Counter
from collections.abc import Iterable

MOST_TEXTS = 1000


class CommonTexts:
    """Exact counts of the first ``MOST_TEXTS`` distinct texts; others are ignored. Enough for reasons of failures:
    either there are few, or each names its row and none is common."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def update(self, texts: Iterable[str]) -> None:
        """Count texts."""
        for text in texts:
            if text in self._counts or len(self._counts) < MOST_TEXTS:
                self._counts[text] += 1

    def most_common(self, number: int) -> list[tuple[str, int]]:
        """The most common texts with their counts; ties in order of appearance."""
        return self._counts.most_common(number)
