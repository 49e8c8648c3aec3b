"""Baselines that need a model: reward models, process reward models, LLM judges, EORM, readers.

In:   pools (a problem and the texts of its candidates); for EORM also training groups.
Out:  a score per candidate, higher is better, or the reason why there is none (``store.SCORES``).
Does not know: Ray, labels, gold, energies.

``build_scorer`` imports what a kind needs and nothing else: a judge behind an endpoint loads no torch. Single-shot
models are generators, not scorers: see ``docs/baselines.md``.
"""

from collections.abc import Sequence
from pathlib import Path

from raydebm.baselines.protocol import CandidateScorer, PoolTexts, TextScore
from raydebm.baselines.running import score_candidates
from raydebm.config import (
    BaselineConfig,
    EormBaseline,
    JudgeBaseline,
    ProcessRewardBaseline,
    ReaderBaseline,
    RewardModelBaseline,
    ServedReaderBaseline,
)
from raydebm.errors import ConfigError
from raydebm.generators import Budget, Journal, Secret
from raydebm.pairs import TrainingGroup

__all__ = [
    "CandidateScorer",
    "PoolTexts",
    "TextScore",
    "build_scorer",
    "score_candidates",
]


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
    """The scorer of a recipe's entry, ready to be asked. EORM is trained first where ``folder`` holds none.

    Args:
        journal: of a judge's replies; what stands there is not asked (and paid) again.
        budget: shared by all endpoints of a run.
        key: of the endpoint of a judge or a served reader; None reads it from the environment.
        train: training pairs of EORM, all pairs of a problem (``PairsConfig(max_pairs=None)``).
        validation: chooses EORM's epoch.
        folder: where the checkpoint of EORM is or will be.

    Raises:
        CheckpointError: a model cannot be read.
        MissingKeyError: the endpoint's key is not in the environment.
        ConfigError: EORM without a folder.
        PoolError: EORM is to be trained, and there are no pairs.
    """
    match config:
        case JudgeBaseline():
            from raydebm.baselines.judge import Judge

            return Judge(config, journal=journal, budget=budget, key=key)
        case ServedReaderBaseline():
            from raydebm.baselines.served_reader import ServedReader

            return ServedReader(config, key=key)
        case RewardModelBaseline():
            from raydebm.baselines.reward_model import RewardModel

            return RewardModel(config)
        case ProcessRewardBaseline():
            from raydebm.baselines.process_reward import ProcessRewardModel

            return ProcessRewardModel(config)
        case ReaderBaseline():
            from raydebm.baselines.causal_reader import Reader

            return Reader(config)
        case EormBaseline():
            from raydebm.baselines.eorm import Eorm, train_eorm

            if folder is None:
                raise ConfigError(
                    f"baseline {config.name!r}: kind {config.kind} keeps a checkpoint in the run directory, which must "
                    "be a local folder"
                )
            if not Eorm.is_trained(folder, config, train, validation):
                train_eorm(config, train=train, validation=validation, folder=folder)
            return Eorm.load(folder, config)
