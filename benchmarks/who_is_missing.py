"""Confidence where only some authors answered: the weakest, the strongest, or random ones, by five folds over problems.

    raydebm run --config configs/mmlu_pro_recorded.yaml --until labels run_dir=runs/mmlu_pro
    python benchmarks/who_is_missing.py runs/mmlu_pro

Every problem is decided by the policy that ``fit_policy`` fits on the whole pools of the other folds, without energies.
Weak and strong: by skill on these folds, as the fastest models are often the weakest.
"""

import argparse
import hashlib
from dataclasses import replace

import numpy as np
from kinds_of_question import labelled

from raydebm.config import DecisionConfig
from raydebm.decision.calibration.policy_fit import LabelledProblems, PolicyFit, fit_policy
from raydebm.decision.evidence.fitting import LabelledPool, LabelledTable
from raydebm.decision.evidence.profiles import winners
from raydebm.decision.policy import Policy
from raydebm.run.directory import RunDir

PROMISE = 0.1


def decided(fit: PolicyFit, pools: list[LabelledPool]) -> list[tuple[float, float, bool]]:
    """Confidence, worth, and whether it is given out under the promise, by problem."""
    posterior = fit.policy.posterior
    assert posterior is not None
    table = LabelledTable.of(pools)
    estimates = posterior.estimates(table.table)
    chosen = winners(fit.policy.profile, table.table, estimates, posterior)
    worth = np.append(np.nan_to_num(table.given_worth(posterior.reference)), 0.0)[chosen]
    confidence = np.append(estimates.probability, 0.0)[chosen]
    tau = fit.promises[0].tau
    given = confidence >= (np.inf if tau is None else tau)
    return list(zip(confidence.tolist(), worth.tolist(), given.tolist(), strict=True))


def of_authors(pool: LabelledPool, names: set[str]) -> LabelledPool | None:
    places = [place for place, one in enumerate(pool.candidates) if one.candidate.generator in names]
    if not places:
        return None
    return replace(pool, candidates=[pool.candidates[place] for place in places], worth=pool.worth[places])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run_dir")
    pools = labelled(RunDir(parser.parse_args().run_dir))
    folds = [int(hashlib.sha256(f"outer:{pool.text_key}".encode()).hexdigest(), 16) % 5 for pool in pools]
    rng, results = np.random.default_rng(0), dict[str, list[tuple[float, float, bool]]]()
    for fold in range(5):
        train, tested = ([pool for pool, own in zip(pools, folds, strict=True) if (own == fold) is is_tested]
                         for is_tested in (False, True))  # fmt: skip
        data = LabelledProblems(pools=train, task="", outcome="correct")
        fit = fit_policy(data, base=Policy(max_passes=1), config=DecisionConfig(), promises=(PROMISE,))
        assert fit.policy.posterior is not None
        authors = fit.policy.posterior.reference.authors
        order = sorted(authors, key=lambda name: authors[name].skill)
        results.setdefault("all", []).extend(decided(fit, tested))
        for count in sorted({max(1, len(order) // 4), max(1, len(order) // 2)}):
            groups = {
                "weakest": order[:count],
                "strongest": order[-count:],
                "random": [*rng.choice(order, count, False)],
            }
            for name, chosen in groups.items():
                parts = [part for pool in tested if (part := of_authors(pool, set(chosen))) is not None]
                results.setdefault(f"{name} {count} of {len(order)}", []).extend(decided(fit, parts))
    print("| who answered | n | right, % | mean confidence, % | difference | given out, % | wrong among them, % |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for name, rows in results.items():
        confidence, right, given = (np.array(column, dtype=np.float64) for column in zip(*rows, strict=True))
        gaps = confidence - right
        low, high = np.quantile(gaps[rng.integers(0, len(rows), (2000, len(rows)))].mean(axis=1), [0.025, 0.975])
        wrong = f"{100 * (1 - right[given > 0].mean()):.1f}" if given.any() else "-"
        print(
            f"| {name} | {len(rows):,} | {100 * right.mean():.1f} | {100 * confidence.mean():.1f} | "
            f"{100 * gaps.mean():+.1f} [{100 * low:+.1f}, {100 * high:+.1f}] | {100 * given.mean():.1f} | {wrong} |"
        )


if __name__ == "__main__":
    main()
