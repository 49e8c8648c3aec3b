"""From which coverages promises about violation scores are best tested: made-up scores that scatter in three ways.

    python benchmarks/promise_starts.py

Prints, for each set of coverages from which the walks begin, how often some threshold is certified, and the mean
coverage (0 where none is). Every cell has samples of its own seed, the same for all sets.
"""

import argparse
import zlib
from collections.abc import Callable, Mapping

import numpy as np

from raydebm.decision.evidence.groups import Floats
from raydebm.decision.guarantee import guarantee

STARTS: Mapping[str, tuple[float, ...]] = {
    "10, 25, 40, 60 %": guarantee.STARTS,
    "25, 50, 75, 90 %": guarantee.BOUNDED_STARTS,
}
SCATTER = 12.0
"""Sum of the two parameters of each problem's beta distribution."""
MEANS: Mapping[str, Callable[[Floats], Floats]] = {
    "the same for all": lambda confidence: np.full(len(confidence), 0.035),
    "falls with the confidence": lambda confidence: 0.01 + 0.08 * (1 - confidence),
    "high for the least certain tenth": lambda confidence: np.where(confidence < 0.1, 0.25, 0.02),
}


def sample(rng: np.random.Generator, num_problems: int, mean_of: Callable[[Floats], Floats]) -> tuple[Floats, Floats]:
    """(confidences, violation scores), each (P,)."""
    confidence = rng.random(num_problems)
    mean = mean_of(confidence)
    return confidence, rng.beta(mean * SCATTER, (1 - mean) * SCATTER)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=int, nargs="+", default=[60, 100, 200])
    parser.add_argument("--promised", type=float, nargs="+", default=[0.05, 0.1])
    parser.add_argument("--samples", type=int, default=60)
    options = parser.parse_args()
    print("| mean violation | problems | promised | " + " | ".join(f"from {name}" for name in STARTS) + " |")
    print("|---|---:|---:|" + "---:|" * len(STARTS))
    for name, mean_of in MEANS.items():
        for num_problems in options.problems:
            rng = np.random.default_rng(zlib.crc32(f"{name} {num_problems}".encode()))
            samples = [sample(rng, num_problems, mean_of) for _ in range(options.samples)]
            for promised in options.promised:
                cells = [certified(samples, promised, starts) for starts in STARTS.values()]
                print(f"| {name} | {num_problems} | {promised:g} | {' | '.join(cells)} |", flush=True)


def certified(samples: list[tuple[Floats, Floats]], promised: float, starts: tuple[float, ...]) -> str:
    """Share of the samples in which some threshold is certified, and their mean coverage."""
    guarantee.BOUNDED_STARTS = starts
    found = [guarantee.certify(*each, max_error=promised, confidence=0.9, binary=False) for each in samples]
    share, coverage = np.mean([each.certified for each in found]), np.mean([each.coverage for each in found])
    return f"{share:.2f}, {coverage:.2f}"


if __name__ == "__main__":
    main()
