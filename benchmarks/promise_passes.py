"""How often a promise is broken where the policy may draw further passes, on made up problems.

    python benchmarks/promise_passes.py

Each of 400 problems has a confidence, drawn uniformly between 0.5 and 0.99, after each of its passes, and every
selection is wrong with probability 0.2, whatever the confidence. So a certified error below 0.2 is a broken promise, at
any threshold and any ``tau_accept``. ``max_error: auto`` at a coverage of 80 % and a confidence of 0.9, which allows
10 % of the calibrations to break it; 2,000 calibrations a row, seed 0.
"""

import numpy as np

from raydebm.config import DecisionConfig
from raydebm.decision.calibration.policy_fit import fit_thresholds
from raydebm.decision.calibration.walks import Walk
from raydebm.decision.evidence.posterior import special_case
from raydebm.decision.policy import Policy
from raydebm.evaluation.report.table_cells import with_interval
from raydebm.evaluation.stats.intervals import Bootstrap

NUM_PROBLEMS, NUM_RUNS, TRUE_ERROR = 400, 2000, 0.2


def main() -> None:
    print("| passes | cost of a pass | broken, % |")
    print("|---:|---:|---:|")
    for num_passes, cost in ((1, 0.05), (2, 0.05), (2, 0.0), (3, 0.05)):
        broken = Bootstrap.of(NUM_RUNS, num_bootstrap=2000, seed=0).proportion(_broken(num_passes, cost))
        print(f"| {num_passes} | {cost:g} | {with_interval(broken)} |", flush=True)


def _broken(num_passes: int, cost: float) -> np.ndarray:
    """(NUM_RUNS,): 1 where a calibration promises less than the true error."""
    generator = np.random.default_rng(0)
    policy = Policy(rule="posterior", posterior=special_case("votes"), max_passes=num_passes)
    config = DecisionConfig.model_validate({"max_error": "auto", "min_coverage": 0.8, "costs": {"pass": cost}})
    broken = np.zeros(NUM_RUNS)
    for run in range(NUM_RUNS):
        shape = (NUM_PROBLEMS, num_passes)
        steps = Walk(
            confidence=generator.uniform(0.5, 0.99, shape),
            worth=(generator.random(shape) >= TRUE_ERROR).astype(np.float64),
        )
        broken[run] = _is_broken(policy, steps, config)
    return broken


def _is_broken(policy: Policy, steps: Walk, config: DecisionConfig) -> bool:
    guarantee = fit_thresholds(policy, lambda _: steps, config=config, promises=()).guarantee
    return guarantee is not None and guarantee.certified and guarantee.max_error < TRUE_ERROR


if __name__ == "__main__":
    main()
