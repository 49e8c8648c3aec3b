"""The public names, for type checkers and editors."""

from raydebm.choose import Choice as Choice
from raydebm.choose import Chooser as Chooser
from raydebm.choose import best_of as best_of
from raydebm.config import Recipe as Recipe
from raydebm.config import load_recipe as load_recipe
from raydebm.decision.policy import Policy as Policy
from raydebm.errors import RaydebmError as RaydebmError
from raydebm.pipeline.runner import Pipeline as Pipeline
from raydebm.records import Candidate as Candidate
from raydebm.records import Energies as Energies
from raydebm.records import Gold as Gold
from raydebm.records import Label as Label
from raydebm.records import Problem as Problem
from raydebm.scorer.ensemble import EnsembleScorer as EnsembleScorer
from raydebm.tasks import get_task as get_task
from raydebm.tasks.base import Task as Task
from raydebm.tasks.constraints import Constraint as Constraint

__version__: str
