"""Training pairs, and the folds of a run."""

from pydantic import Field, field_validator

from raydebm.config.section import Section

BAG_FRAC = 0.8
"""Share of the training problems that each adapter is trained on, sampled per adapter."""
POSITIVE_FRAC = 0.25
"""For tasks with violation scores: the share of a problem's best candidates that counts as correct (paper: 25 %)."""


Fold = tuple[int, int]
"""One of the folds that divide all problems of a recipe, those of ``task.train`` and ``task.test`` together: its number
from 0, and the number of folds. Problems are assigned by the run's seed, and those with the same text share a fold."""


class PairsConfig(Section):
    max_pairs: int | None = Field(16, ge=1)
    """Pairs per problem; null: all pairs."""
    max_correct: int | None = Field(None, ge=1)
    """Correct candidates per problem. Default: the task's (all, or the paper's limit for the task)."""
    max_incorrect: int | None = Field(None, ge=1)
    """Incorrect candidates per problem, the least severe failures first. Default: the task's."""
    within_author: bool = False
    """Pair only texts of the same generator, so that adapters cannot learn who wrote a text instead of whether it is
    right. Needs several samples per generator and problem; ``max_correct`` and ``max_incorrect`` then apply per
    generator and problem."""
    validation_frac: float = Field(0.2, gt=0, lt=1)
    """Share of the training problems reserved for early stopping and calibration."""
    seed: int | None = None
    """Seed of the split into training and validation, the pairs, the bags and the adapters. Default: the run's seed.
    Another seed trains again on the same candidates (`raydebm seeds`)."""
    fold: Fold | None = None
    """Test one fold of all problems and train on the others: its number from 0, and the number of folds (`raydebm seeds
    --folds`). Default: the problems of ``task.test`` are tested."""

    @field_validator("fold")
    @classmethod
    def _known(cls, fold: Fold | None) -> Fold | None:
        if fold is not None and not 0 <= fold[0] < fold[1]:
            raise ValueError(f"must be the fold's number from 0, and the number of folds; got {list(fold)}")
        return fold
