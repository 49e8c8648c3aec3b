"""Baselines with a model: reward models, process reward models, LLM judges, EORM, readers.

In:   pools (a problem and the texts of its candidates); for EORM also training groups.
Out:  a score per candidate, higher is better, or the reason for its absence (``run.tables.SCORES``).
Independent of: Ray, labels, gold, energies.

``build_scorer`` imports only the dependencies of one kind: a judge behind an endpoint loads no torch. Single-shot
models are generators, not scorers: see ``docs/baselines.md``.
"""

from collections.abc import Sequence
from pathlib import Path

from raydebm.config import BaselineConfig, EormBaseline, JudgeBaseline, ModelBaseline
from raydebm.errors import ConfigError
from raydebm.evaluation.baselines.protocol import CandidateScorer, PoolTexts, TextScore, score_candidates
from raydebm.generators import Secret
from raydebm.generators.endpoint.rate_limits import Budget
from raydebm.generators.journal import Journal
from raydebm.scorer.pairs import TrainingGroup

__all__ = ["CandidateScorer", "PoolTexts", "TextScore", "build_scorer", "score_candidates"]


def build_scorer(
    config: BaselineConfig,
    *,
    journal: Journal | None = None,
    budget: Budget | None = None,
    key: Secret | None = None,
    train: Sequence[TrainingGroup] = (),
    validation: Sequence[TrainingGroup] = (),
    folder: Path | None = None,
) -> CandidateScorer:
    """Build the scorer of a recipe's entry. EORM is trained first if ``folder`` has no checkpoint.

    Args:
        journal: Journal of a judge's replies. Recorded replies are not requested (or paid for) again.
        budget: Budget shared by all endpoints of a run.
        key: Key of a judge's endpoint. Default: read from the environment.
        train: EORM's training groups, with all pairs of each problem (``PairsConfig(max_pairs=None)``).
        validation: Groups by which EORM's epoch is chosen.
        folder: Folder of EORM's checkpoint, existing or new.

    Raises:
        CheckpointError: a model cannot be read.
        MissingKeyError: the endpoint's key is not in the environment.
        ConfigError: ``folder`` is missing for EORM.
        PoolError: EORM has no checkpoint yet, and there are no pairs to train it on.
    """
    match config:
        case JudgeBaseline():
            from raydebm.evaluation.baselines.judge import Judge

            return Judge(config, journal=journal, budget=budget, key=key)
        case ModelBaseline(kind="reward_model"):
            from raydebm.evaluation.baselines.reward_models import RewardModel

            return RewardModel(config)
        case ModelBaseline(kind="process_reward"):
            from raydebm.evaluation.baselines.reward_models import ProcessRewardModel

            return ProcessRewardModel(config)
        case ModelBaseline():
            from raydebm.evaluation.baselines.causal_reader import Reader

            return Reader(config)
        case EormBaseline():
            from raydebm.evaluation.baselines.eorm import SIZES, Eorm, train_eorm

            if folder is None:
                raise ConfigError(
                    f"baseline {config.name!r}: kind {config.kind} keeps a checkpoint in the run directory, which must "
                    "be a local folder"
                )
            size = SIZES[config.size]
            if not Eorm.is_trained(folder, size, train, validation):
                train_eorm(config.name, size, train=train, validation=validation, folder=folder)
            return Eorm(folder, config.name)
