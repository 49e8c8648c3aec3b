"""The pairs that adapters learn from, and that decide when they stop."""

from raydebm.pairs import build_pairs, with_defaults
from raydebm.pipeline.context import TRAIN, VALIDATION, Facts, StageContext
from raydebm.records import Candidate


def make_pairs(context: StageContext) -> Facts:
    """Split problems, and pair correct with incorrect candidates."""
    labels, splits = context.run.labels(), context.splits()
    candidates = candidates_as_scored(context)
    config = with_defaults(context.recipe.pairs, context.task.defaults)
    facts: Facts = {}
    for split in (TRAIN, VALIDATION):
        problem_ids = set(splits[split])
        pairs = build_pairs(
            [candidate for candidate in candidates if candidate.problem_id in problem_ids],
            [label for label in labels if label.problem_id in problem_ids],
            config=config,
            seed=context.recipe.training_seed,
        )
        context.run.write_pairs(pairs, split)
        paired = {pair.problem_id for pair in pairs}
        facts[split] = {"pairs": len(pairs), "problems": len(paired), "of": len(problem_ids)}
    return facts


def candidates_as_scored(context: StageContext) -> list[Candidate]:
    """The candidates of the first pass, with the texts that the scorer reads."""
    return [candidate.as_scored(context.recipe.scorer.reasoning) for candidate in context.run.candidates()]
