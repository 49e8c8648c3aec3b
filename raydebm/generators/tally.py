"""Counts of generated candidates, with a check that enough succeeded.

Independent of: Ray, files.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from raydebm.errors import PoolError

_SHOWN_ERRORS = 3
_ERROR_CHARS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedSamples:
    """Requests that waves saved because answers were settled."""

    num_problems: int
    num_settled: int
    """Problems that ended before all of their samples were taken."""
    num_samples: int
    """Number of requests that were never sent."""
    sample_share: float
    """Fraction of all planned samples, without greedy requests."""
    completion_tokens: int | None
    """Estimated completion tokens saved: each saved sample counts as its generator's mean. None if the tokens of such a
    generator are unknown."""
    token_share: float | None
    """Estimated fraction of the completion tokens of all planned samples."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationSummary:
    """Counts of one generation stage."""

    num_requests: int
    num_ok: int
    num_failed: int
    num_reused: int
    """Number of answers among ``num_ok`` that are from the journal."""
    prompt_tokens: int
    completion_tokens: int
    usd: float
    """Known spending: on all answers, including those of earlier runs, and on the failed requests of this run."""
    num_unpriced: int
    """Number of answers of unknown cost."""
    seconds: float
    errors: tuple[tuple[str, int], ...]
    """The most common error texts with their counts."""
    failed_by_generator: tuple[tuple[str, int], ...]
    saved: SavedSamples | None = None
    """None if everything was sent at once."""

    def facts(self) -> dict[str, Any]:
        """The summary as JSON values, for manifests."""
        return asdict(self) | {
            "errors": [list(error) for error in self.errors],
            "failed_by_generator": dict(self.failed_by_generator),
        }


class Tally:
    """Counter of candidate rows."""

    def __init__(self) -> None:
        self.num_ok = self.num_failed = 0
        self._prompt_tokens = self._completion_tokens = self._num_unpriced = 0
        self._usd = 0.0
        self._errors = CommonTexts()
        self._failed: Counter[str] = Counter()
        self._samples: Counter[str] = Counter()
        self._tokens: Counter[str] = Counter()
        self._without_tokens: set[str] = set()

    def add(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Count rows of the candidates table."""
        for row in rows:
            self._prompt_tokens += row["prompt_tokens"] or 0
            self._completion_tokens += row["completion_tokens"] or 0
            self._usd += row["cost_usd"] or 0.0
            if row["temperature"] > 0:
                self._add_sample(row["generator"], row["completion_tokens"], failed=row["text"] is None)
            if row["text"] is None:
                self.num_failed += 1
                self._errors.update([str(row["error"])[:_ERROR_CHARS]])
                self._failed[row["generator"]] += 1
                continue
            self.num_ok += 1
            self._num_unpriced += row["cost_usd"] is None

    def _add_sample(self, generator: str, tokens: int | None, *, failed: bool) -> None:
        self._samples[generator] += 1
        self._tokens[generator] += tokens or 0
        if tokens is None and not failed:
            self._without_tokens.add(generator)

    def saved(self, unsent: Mapping[str, int], *, num_problems: int, num_settled: int) -> SavedSamples:
        """Savings from not sending these numbers of samples, by generator."""
        num_unsent, num_samples = sum(unsent.values()), self._samples.total()
        tokens = share = None
        if not any(name in self._without_tokens or not self._samples[name] for name in unsent):
            tokens = round(sum(count * self._tokens[name] / self._samples[name] for name, count in unsent.items()))
            share = tokens / max(tokens + self._tokens.total(), 1)
        return SavedSamples(
            num_problems=num_problems,
            num_settled=num_settled,
            num_samples=num_unsent,
            sample_share=num_unsent / max(num_unsent + num_samples, 1),
            completion_tokens=tokens,
            token_share=share,
        )

    def summary(self, *, seconds: float, num_reused: int = 0, saved: SavedSamples | None = None) -> GenerationSummary:
        """The counts with time and cost, for the stage's manifest."""
        return GenerationSummary(
            num_requests=self.num_ok + self.num_failed,
            num_ok=self.num_ok,
            num_failed=self.num_failed,
            num_reused=num_reused,
            prompt_tokens=self._prompt_tokens,
            completion_tokens=self._completion_tokens,
            usd=self._usd,
            num_unpriced=self._num_unpriced,
            seconds=seconds,
            errors=tuple(self._errors.most_common(_SHOWN_ERRORS)),
            failed_by_generator=tuple(sorted(self._failed.items())),
            saved=saved,
        )


def check_enough(summary: GenerationSummary, *, max_failed_frac: float, journal: str) -> None:
    """Check that enough requests succeeded.

    Raises:
        PoolError: more than ``max_failed_frac`` of the requests failed, or there were none.
    """
    if summary.num_requests == 0:
        raise PoolError("nothing to generate: there are no problems, or every generator has num_samples 0")
    if summary.num_failed <= max_failed_frac * summary.num_requests:
        return
    reasons = "; ".join(f"{count} x {text}" for text, count in summary.errors)
    raise PoolError(
        f"{summary.num_failed} of {summary.num_requests} requests failed, more than generation.max_failed_frac = "
        f"{max_failed_frac:g} allows. Most common errors: {reasons}. {summary.num_ok} answers are kept in {journal}; "
        "fix the cause and run the same command again, which repeats only the failed requests"
    )


MAX_TEXTS = 1000


class CommonTexts:
    """Exact counts of the first ``MAX_TEXTS`` distinct texts. Others are ignored, which suffices for failures: their
    reasons are few, or each names its row and none of them is common."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def update(self, texts: Iterable[str]) -> None:
        for text in texts:
            if text in self._counts or len(self._counts) < MAX_TEXTS:
                self._counts[text] += 1

    def most_common(self, number: int) -> list[tuple[str, int]]:
        """The most common texts with their counts; ties in order of appearance."""
        return self._counts.most_common(number)
