"""Value of each piece of evidence: alone, left out, and with all others, in five folds of the problems.

    raydebm run --config configs/mmlu_pro_recorded.yaml --until labels run_dir=runs/mmlu_pro
    raydebm seeds --config configs/gsm8k_recorded.yaml --folds 5 run_dir=runs/gsm8k
    python benchmarks/evidence.py runs/mmlu_pro runs/gsm8k

Every problem is decided by a posterior that ``fit_policy`` fits on other problems. In a run with folds (``raydebm seeds
--folds``), a fold's problems have energies of its own adapters, which did not train on them, and the posterior is
fitted on validation problems and on training problems out of bag. In a run without folds, energies are not used.
"""

import argparse
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from fields import auroc, brier, labelled
from guarantee_resplits import decided as decided_by
from guarantee_resplits import pipeline_of
from numpy.typing import NDArray

from raydebm.config import DecisionConfig
from raydebm.decision.calibration.policy_fit import fit_policy
from raydebm.decision.evidence.fitting import competition_of
from raydebm.decision.evidence.measuring import terms_about
from raydebm.decision.evidence.posterior import Competition
from raydebm.decision.policy import Policy
from raydebm.decision.table import Floats, PoolTable
from raydebm.identity import text_key
from raydebm.pipeline.context import TEST
from raydebm.pipeline.pools import evaluated_pools
from raydebm.pipeline.stages.posterior import learned_from
from raydebm.records import ScoredCandidate
from raydebm.run.directory import RunDir

ERRORS = (0.05, 0.1, 0.2)
PIECES = {
    "votes": ("votes",), "skill": ("authors", "skill"), "energy": ("energy",), "constraints": ("penalty",),
    "length": ("length",),
}  # fmt: skip
"""Terms of each piece; a user's own term (``RAYDEBM_EXTENSIONS``) is a piece too. Terms for "none of them" are always
used, except ``pool_length``, which needs ``length``."""
Fold = tuple[PoolTable, PoolTable]
"""Labelled problems to learn from, and labelled problems to decide."""


@dataclass(frozen=True, slots=True)
class Decided:
    """By problem: worth and confidence of the selected answer, and for each of ``ERRORS`` 1 if it is returned."""

    right: Floats
    confidence: Floats
    given: Floats

    def figures(self, at: NDArray[np.intp]) -> Floats:
        """Share of right answers, AUROC, Brier score and coverages on the problems ``at``, in percent."""
        right, sure = (self.right[at] > 0.5).astype(np.float64), self.confidence[at]
        return 100 * np.array([right.mean(), auroc(sure, right), brier(sure, right), *self.given[:, at].mean(axis=1)])


def folds_of(run_dir: Path) -> Iterator[Fold]:
    """The folds of a finished run. A run without folds is split into five by the texts of its problems."""
    inner = sorted(run_dir.glob("fold-*/energies"))
    for folder in (each.parent for each in inner):
        pipeline = pipeline_of(str(folder))
        yield learned_from(pipeline).with_worth(), evaluated_pools(pipeline, TEST).with_worth()
    if not inner:
        pools = labelled(RunDir(str(run_dir)), proofs=True)
        keys = [f"outer:{text_key(problem.prompt)}" for problem in pools.problems]
        fold = np.array([int(hashlib.sha256(key.encode()).hexdigest(), 16) % 5 for key in keys])
        for number in range(5):
            yield pools.of_pools(np.flatnonzero(fold != number)), pools.of_pools(np.flatnonzero(fold == number))


def masked(pools: PoolTable, *, constraints: bool, kinds: bool) -> PoolTable:
    """The pools, without proofs and penalties unless ``constraints``, and without kinds unless ``kinds``."""

    def of(scored: ScoredCandidate) -> ScoredCandidate:
        report = scored.report
        if not constraints and report.vote_key is not None:
            report = replace(report, penalty=0.0, proof=None, violations=())
        return replace(scored, report=report, kind=scored.kind if kinds else "")

    own = [[of(pools.candidates[row]) for row in pools.rows_of(pool)] for pool in range(pools.num_pools)]
    return replace(PoolTable.of(own, problems=pools.problems), correct=pools.worth)


def decided(folds: Sequence[Fold], pieces: Sequence[str], *, competition: Competition, kinds: bool) -> Decided:
    """Decisions on the problems of all folds, in order."""
    terms = [term for piece in pieces for term in PIECES.get(piece, (piece,))]
    context = ["none", "unparsed", *(["kind"] if kinds else []), *(["pool_length"] if "length" in pieces else [])]
    parts = []
    for learned, tested in folds:
        train, test = (masked(each, constraints="constraints" in pieces, kinds=kinds) for each in (learned, tested))
        fit = fit_policy(
            train,
            base=Policy(max_passes=1),
            config=DecisionConfig(),
            competition=competition,
            profile="posterior",
            errors=ERRORS,
            terms=terms,
            context=context,
        )
        confidence, worth = decided_by(fit, test)
        sure = np.maximum(confidence, 0.0)
        taus = [
            guarantee.tau if guarantee.certified and guarantee.tau is not None else np.inf
            for guarantee in fit.guarantees
        ]
        given = (sure >= np.array(taus)[:, None]).astype(np.float64)
        parts.append(Decided(np.nan_to_num(worth), sure, given))
    return Decided(*(np.concatenate([getattr(part, name) for part in parts], axis=-1) for name in Decided.__slots__))


def print_rows(run_dir: Path) -> None:
    """Print Markdown rows of one run. Rows without a piece are differences from all evidence, paired by problem."""
    folds, competition = list(folds_of(run_dir)), competition_of(pipeline_of(str(run_dir)).task)
    count = sum(tested.num_pools for _, tested in folds)
    scored = [candidate for _, tested in folds for candidate in tested.candidates]
    lacks = {
        "energy": all(each.energies is None for each in scored),
        "constraints": not any(each.report.violations or each.report.proof is not None for each in scored),
    }
    built_in = {term for terms in PIECES.values() for term in terms}
    own = [term.name for term in terms_about("answer") if term.name not in built_in]
    pieces = [piece for piece in (*PIECES, *own) if not lacks.get(piece, False)]
    has_kinds = any(each.kind for each in scored)
    sets = {"all": pieces, **{f"only {piece}": [piece] for piece in pieces}}
    sets |= {f"without {piece}": [other for other in pieces if other != piece] for piece in pieces}
    runs = {name: (chosen, has_kinds) for name, chosen in sets.items()}
    if has_kinds:
        runs["without kinds"] = (pieces, False)
    given = {
        name: decided(folds, chosen, competition=competition, kinds=kinds) for name, (chosen, kinds) in runs.items()
    }
    resamples = np.random.default_rng(0).integers(0, count, (2000, count))
    every = {name: np.array([each.figures(at) for at in resamples]) for name, each in given.items()}
    whole = {name: each.figures(np.arange(count)) for name, each in given.items()}
    for name in given:
        left_out = name.startswith("without")
        values = whole[name] - left_out * whole["all"]
        low, high = np.nanquantile(every[name] - left_out * every["all"], [0.025, 0.975], axis=0)
        sign = "+" if left_out else ""
        cells = [f"{value:{sign}.1f} [{a:.1f}, {b:.1f}]" for value, a, b in zip(values, low, high, strict=True)]
        print(f"| {run_dir.name} | {count:,} | {name} | {' | '.join(cells)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run_dirs", nargs="+", type=Path)
    for run_dir in parser.parse_args().run_dirs:
        print_rows(run_dir)


if __name__ == "__main__":
    main()
