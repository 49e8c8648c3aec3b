"""How each stage of ``run.stages`` is made: the list that connects the graph with the functions of ``stages``."""

from collections.abc import Callable
from dataclasses import dataclass

from raydebm.pipeline.context import Facts, StageContext
from raydebm.pipeline.scores import score_baselines
from raydebm.pipeline.stages.calibration import make_calibration, prepare_calibration
from raydebm.pipeline.stages.candidates import make_candidates
from raydebm.pipeline.stages.energies import make_energies
from raydebm.pipeline.stages.evaluation import make_evaluation
from raydebm.pipeline.stages.labels import make_labels
from raydebm.pipeline.stages.pairs import check_twins, make_pairs
from raydebm.pipeline.stages.problems import make_problems
from raydebm.pipeline.stages.scorer import make_scorer
from raydebm.run.stages import StageName


@dataclass(frozen=True, slots=True)
class Maker:
    """The function that makes a stage."""

    make: Callable[[StageContext], Facts]
    """Writes the stage's files; the stages before it are complete."""
    prepare: Callable[[StageContext], None] | None = None
    """Brings up to date what the stage reads and no stage writes; may ask for the stage to be made again."""


MAKERS: dict[StageName, Maker] = {
    "problems": Maker(make_problems),
    "candidates": Maker(make_candidates),
    "labels": Maker(make_labels),
    "pairs": Maker(make_pairs, prepare=check_twins),
    "scorer": Maker(make_scorer),
    "energies": Maker(make_energies),
    "calibration": Maker(make_calibration, prepare=prepare_calibration),
    "evaluation": Maker(make_evaluation, prepare=score_baselines),
}
