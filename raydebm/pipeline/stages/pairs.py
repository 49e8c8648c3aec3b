"""Pairs for training adapters and for early stopping."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator

from raydebm.errors import PoolError
from raydebm.pipeline.context import TRAIN, VALIDATION, Facts, StageContext
from raydebm.records import Candidate, Label, Pair
from raydebm.scorer.pairs import PairMaker, with_defaults

LabelledPool = tuple[str, list[Candidate], list[Label]]
"""A problem's id, its candidates and their labels."""


def make_pairs(context: StageContext) -> Facts:
    """Split the problems, and pair correct with incorrect candidates."""
    config, splits = with_defaults(context.recipe.pairs, context.task.defaults), context.splits()
    facts: Facts = {}
    for split in (TRAIN, VALIDATION):
        problem_ids = frozenset(splits[split])
        maker = PairMaker(config, seed=context.recipe.training_seed)
        context.run.write_pairs(_pairs(context, problem_ids, maker), split)
        facts[split] = {"pairs": maker.num_pairs, "problems": maker.num_paired, "of": len(problem_ids)}
    return facts


def candidates_as_scored(context: StageContext) -> Iterator[Candidate]:
    """The candidates of the first pass, with the texts that the scorer reads."""
    return (candidate.as_scored(context.recipe.scorer.reasoning) for candidate in context.run.stored_candidates())


def _pairs(context: StageContext, problem_ids: Collection[str], maker: PairMaker) -> Iterator[Pair]:
    """Pairs of these problems. Raises PoolError at the end if there are none, so that no empty table is left."""
    candidates, labels = context.run.stored_candidates(), context.run.stored_labels()
    if len(candidates) != len(labels):
        raise PoolError(f"{len(candidates)} candidates have {len(labels)} labels; label them again")
    counts = Counter(candidates.column("problem_id"))
    labelled = zip(candidates_as_scored(context), labels, strict=True)
    for problem_id, written, judged in complete_pools(labelled, counts):
        pool = [candidate for candidate in written if not candidate.is_greedy]
        if problem_id in problem_ids and pool:
            yield from maker.pairs(problem_id, pool, {label.candidate_id: label for label in judged})
    maker.require_pairs()


def complete_pools(labelled: Iterable[tuple[Candidate, Label]], counts: Counter[str]) -> Iterator[LabelledPool]:
    """Pools in order of appearance, each once it and all earlier ones are complete. Only the others are in memory:
    a single one if the candidates are grouped by problem.

    Args:
        labelled: each candidate with its label.
        counts: number of candidates of each problem.

    Raises:
        PoolError: a label is for another candidate.
    """
    missing, begun = Counter(counts), dict[str, LabelledPool]()
    for candidate, label in labelled:
        if candidate.candidate_id != label.candidate_id:
            raise PoolError(
                f"labels are not in the order of the candidates: found {label.candidate_id!r}, expected "
                f"{candidate.candidate_id!r}; label them again"
            )
        problem_id = candidate.problem_id
        _, candidates, labels = begun.setdefault(problem_id, (problem_id, [], []))
        candidates.append(candidate)
        labels.append(label)
        missing[problem_id] -= 1
        while begun and not missing[first := next(iter(begun))]:
            yield begun.pop(first)
