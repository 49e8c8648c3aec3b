"""Confidence and accuracy on parts of a run's test pools: one candidate, two, ..., the whole pool.

    python benchmarks/confidence_by_size.py runs/math-recorded runs/gsm8k-recorded

Fits the policy on the run's labelled problems as calibration does, and draws three random parts of each size from every
test pool (seed 0). Prints the mean confidence, the share of right selections and the ECE, without and with the
correction for small pools (``raydebm.decision.evidence.pool_sizes``).
"""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from decision_on_run import fit_on_run

from raydebm.config.policy import Profile
from raydebm.decision.evidence.fitting import LabelledPool, LabelledTable
from raydebm.decision.evidence.pool_sizes import part_of
from raydebm.decision.evidence.posterior import Posterior
from raydebm.decision.evidence.profiles import winners
from raydebm.evaluation.certainty.confidence_calibration import confidence_calibration
from raydebm.evaluation.report.table_cells import ece_cells
from raydebm.evaluation.stats.intervals import Bootstrap
from raydebm.pipeline.stages.posterior import labelled_pools

PARTS_PER_POOL = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run_dirs", nargs="+")
    for run_dir in parser.parse_args().run_dirs:
        print("\n".join(section(run_dir)), flush=True)


def section(run_dir: str) -> Iterator[str]:
    """Markdown about one run."""
    fitted, _, test = fit_on_run(run_dir)
    posterior, pools = fitted.policy.posterior, [pool for pool in labelled_pools(test) if pool.is_labelled]
    assert posterior is not None
    plain = replace(posterior, size_offset=0.0, size_slope=0.0)
    full = posterior.full_size
    rng = np.random.default_rng(0)
    yield f"## {run_dir}\n"
    yield f"Profile {fitted.policy.profile}, {len(pools)} test problems, whole from {full} candidates.\n"
    yield "| candidates | parts | right % | confidence %, without | with | ECE, without | with |"
    yield "|---:|---:|---:|---:|---:|---:|---:|"
    for size in [*sorted({size for size in (1, 2, 3, full // 2, full - 1) if 0 < size < full}), None]:
        parts = pools if size is None else list(_parts(pools, size, rng))
        right, before, ece_before = _judged(parts, plain, fitted.policy.profile)
        _, after, ece_after = _judged(parts, posterior, fitted.policy.profile)
        name = "all" if size is None else str(size)
        yield f"| {name} | {len(parts)} | {right:.1f} | {before:.1f} | {after:.1f} | {ece_before} | {ece_after} |"
    yield ""


def _parts(pools: Sequence[LabelledPool], size: int, rng: np.random.Generator) -> Iterator[LabelledPool]:
    for pool in pools:
        if sum(scored.candidate.text is not None for scored in pool.candidates) < size:
            continue
        for _ in range(PARTS_PER_POOL):
            part = part_of(pool, size, rng)
            if part.is_labelled:
                yield part


def _judged(parts: Sequence[LabelledPool], posterior: Posterior, profile: Profile) -> tuple[float, float, str]:
    """(share of right selections in %, mean confidence in %, ECE)."""
    labelled = LabelledTable.of(parts)
    estimates = posterior.estimates(labelled.table)
    rows = winners(profile, labelled.table, estimates, posterior)
    worth = np.where(rows >= 0, labelled.given_worth(posterior.reference)[rows], 0.0)
    confidence = np.where(rows >= 0, estimates.probability[rows], 0.0)
    known = ~np.isnan(worth)
    worth, confidence = worth[known], confidence[known]
    ece = confidence_calibration(
        "confidence", "right", confidence, worth, Bootstrap.of(len(worth), num_bootstrap=200, seed=0)
    ).ece
    return 100 * float(worth.mean()), 100 * float(confidence.mean()), ece_cells(ece)[0]


if __name__ == "__main__":
    main()
