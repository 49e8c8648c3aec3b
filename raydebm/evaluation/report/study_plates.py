"""The figures of one study with their captions."""

from collections.abc import Mapping
from typing import Any

from raydebm.evaluation.report import study_figures
from raydebm.evaluation.report.document import Plate, plate_of
from raydebm.evaluation.report.evaluation_report import plates
from raydebm.evaluation.studies.study import StudyResults


def study_plates(results: StudyResults, *, training: Mapping[str, Mapping[str, Any]] | None = None) -> list[Plate]:
    """The evaluation's figures and those of the studies, as far as there is something to draw.

    Args:
        results: the numbers.
        training: contents of training.json by adapter, for the training curves; None leaves them out.
    """
    made = (_ensemble_sizes, _pool_sizes, _decomposition, _lambdas, _grid, _ridges, _picks)
    added = [plate for plate_or_none in made if (plate := plate_or_none(results)) is not None]
    return [*plates(results.evaluation, training=training), *added]


def _ensemble_sizes(results: StudyResults) -> Plate | None:
    if not results.ensemble_sizes:
        return None
    return plate_of(
        study_figures.ensemble_size_figure(results.ensemble_sizes),
        "Ensemble size",
        "By number of adapters, means over all subsets: pass@1 (left), pairs ranked right with what the theory "
        "of correlated adapters predicts (middle), AUROC of -sigma (right; above the dashed line sigma tells). "
        "Bands: 95 % intervals over problems.",
    )


def _pool_sizes(results: StudyResults) -> Plate | None:
    if len(results.pool_sizes) < 2:
        return None
    return plate_of(
        study_figures.pool_size_figure(results.pool_sizes),
        "Candidates per problem",
        f"Expected {'mean violation' if results.evaluation.is_continuous else 'pass@1'} when only n random "
        "candidates of each pool are there. The gap between a curve and the oracle is what choosing loses; a "
        "curve that flattens early needs no more candidates.",
    )


def _decomposition(results: StudyResults) -> Plate | None:
    if results.decomposition is None:
        return None
    return plate_of(
        study_figures.decomposition_figure(results.decomposition),
        "The two terms",
        "A mark per candidate (a sample): learned energy across, constraint penalty upwards (a little "
        "jittered); stars are selected. If both terms help, stars gather in the lower left among correct ones.",
    )


def _lambdas(results: StudyResults) -> Plate | None:
    if results.decomposition is None:
        return None
    return plate_of(
        study_figures.lambda_figure(results.lambdas, chosen=results.evaluation.policy["lambda"]),
        "Lambda",
        "What the weight of the constraint term changes; 0: the learned energy alone. Dotted: the value used.",
    )


def _grid(results: StudyResults) -> Plate | None:
    if not results.grid:
        return None
    policy = results.evaluation.policy
    return plate_of(
        study_figures.grid_figure(
            results.grid, theta_sigma=policy["theta_sigma"], theta_abstain=policy["theta_abstain"]
        ),
        "Grid of thresholds",
        "On validation problems, all passes included, for each pair of thresholds: what the answers are worth "
        "(left) and the share left unanswered (right); the cross is the pair in use"
        + ("" if policy["rule"] == "paper" else " by the paper's rule, which does not decide here")
        + ". Empty: not allowed, since theta_sigma must be below theta_abstain.",
    )


def _ridges(results: StudyResults) -> Plate | None:
    if not results.ridges:
        return None
    return plate_of(
        study_figures.ridge_figure(results.ridges),
        "Energies of correct and incorrect candidates",
        "Distribution of mu for correct (filled) and incorrect (dashed) candidates, with their numbers; a row "
        "for each generator. Rows whose filled parts are shifted against each other: mu knows the author.",
    )


def _picks(results: StudyResults) -> Plate | None:
    picked, correct = study_figures.picks_of(results.generators)
    if len(correct) < 2 or not picked:
        return None
    return plate_of(
        study_figures.pick_figure({"selected": picked}, share_of_correct=correct),
        "Who is picked",
        "Share of the selections that each generator wrote, next to its share of a problem's correct "
        "candidates; both over the problems that have a correct candidate.",
    )
