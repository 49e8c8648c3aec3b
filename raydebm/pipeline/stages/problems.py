"""Problems that a generator can answer, the candidates of the first pass, and their labels and gold-free reports."""

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice

from raydebm.config import Recipe, RecordedGenerator, SplitSource
from raydebm.embedded import local_path
from raydebm.errors import PoolError, TaskDataError
from raydebm.generators.recorded import PoolGenerator, recorded_generators
from raydebm.generators.tally import SavedSamples
from raydebm.identity import content_id
from raydebm.pipeline.context import Facts, StageContext
from raydebm.records import Gold, Problem
from raydebm.run.fingerprints import FILES
from raydebm.run.tables import SplitProblem
from raydebm.tasks import task_of
from raydebm.tasks.sources import recorded_lookups

Loaded = tuple[str, Problem, Gold]
"""``"train"`` or ``"test"``, a problem, and its gold."""


def make_problems(context: StageContext) -> Facts:
    """Load the problems with gold, and write both."""
    with recorded_lookups() as lookups:
        loaded = list(load_problems(context.recipe))
    answered = answerable(context.recipe, loaded)
    num_unanswered = len(loaded) - len(answered)
    context.run.write_golds(gold for _, _, gold in answered)
    context.run.write_problems(SplitProblem(problem=problem, split=split) for split, problem, _ in answered)
    counts = Counter(split for split, _, _ in answered)
    task = context.recipe.task
    named = {name: local_path(name) for name in (task.train.source, task.test.source) if name is not None}
    files = {name: sorted(lookups[path]) for name, path in named.items() if path.is_dir() and path in lookups}
    return {
        **counts,
        **({"not_recorded": num_unanswered} if num_unanswered else {}),
        **({FILES: files} if files else {}),
    }


def load_problems(recipe: Recipe) -> Iterator[Loaded]:
    """(split, problem, gold) of the recipe's sources, within their id ranges and limits.

    Raises:
        TaskDataError: the data is missing, a split is empty, or a problem is in both splits.
    """
    task = task_of(recipe.task)
    seen: dict[str, str] = {}
    for split, source in (("train", recipe.task.train), ("test", recipe.task.test)):
        if recipe.task.data == "paper":
            from raydebm.tasks.paper_data import load_paper_problems  # loads the tasks that it has rules for

            loaded = iter(load_paper_problems(task, source.split, source=source.source, seed=recipe.seed))
        else:
            loaded = task.load(source.split, source=source.source, seed=recipe.seed)
        chosen = islice((pair for pair in loaded if _is_in_range(pair[0].problem_id, source)), source.limit)
        for problem, gold in chosen:
            if seen.setdefault(problem.problem_id, split) != split:
                raise TaskDataError(
                    f"problem {problem.problem_id!r} is in the train and the test part of task {task.name!r}; "
                    "choose disjoint sources or id_range"
                )
            yield split, problem, gold
        if split not in seen.values():
            raise TaskDataError(
                f"task {task.name!r}: source {source.source!r} has no problems for {split} "
                f"(id_range {source.id_range}, limit {source.limit})"
            )


def answerable(
    recipe: Recipe, loaded: Sequence[Loaded], *, pools: Sequence[PoolGenerator] | None = None
) -> Sequence[Loaded]:
    """The loaded problems that some generator of the first pass can answer.

    A recorded pool rarely covers a whole benchmark, and a problem without candidates measures nothing.

    Args:
        recipe: recipe whose generators are asked.
        loaded: result of ``load_problems``.
        pools: the recipe's recorded pools for these problems. Default: read here.

    Raises:
        TaskDataError: a recorded pool cannot be read.
        UnknownNameError: a model is not in its recorded pool.
        PoolError: the recorded pools answer none of the problems.
    """
    live = [config for config in recipe.generators if not isinstance(config, RecordedGenerator)]
    if any(config.num_samples != 0 or recipe.generation.greedy for config in live):
        return loaded
    if pools is None:
        pools = [*recorded_generators(recipe.generators, problems=[problem for _, problem, _ in loaded])]
    answered = [entry for entry in loaded if any(pool.answers(entry[1].problem_id) for pool in pools)]
    if not answered:
        raise PoolError(
            f"the recorded pools of {', '.join(dict.fromkeys(pool.path for pool in pools))} answer none of the "
            f"{len(loaded)} problems of task {recipe.task.name!r}: their problem ids must be raydebm's own or the "
            f"source_id of a problem (its own look like {loaded[0][1].problem_id!r}), and text_fields must name the "
            "field that holds the answer"
        )
    return answered


def _is_in_range(problem_id: str, source: SplitSource) -> bool:
    low, high = source.id_range
    return low <= int(content_id("split", problem_id, length=8), 16) / 2**32 < high


_LOG = logging.getLogger(__name__)


def make_labels(context: StageContext) -> Facts:
    """Label and check the candidates of the first pass."""
    return label_candidates(context, "candidates", "labels")


def label_candidates(context: StageContext, source: str, stage: str) -> Facts:
    """Label the candidates of the stage ``source``, and write the tables to ``stage``."""
    from raydebm.pipeline.ray.label import label

    return label(
        context.problems(),
        context.golds(),
        context.run.stored_candidates(source),
        recipe=context.recipe,
        run=context.run,
        stage=stage,
        on_progress=context.progress(stage),
    )


def make_candidates(context: StageContext) -> Facts:
    """Sample the first pass of every split."""
    from raydebm.pipeline.ray.generate import generate, generate_in_waves

    problems, bar = context.problems(), context.progress("candidates")
    requests = context.requests(problems.values())
    for remark in context.passes.remarks_on_waves:
        _LOG.warning("%s", remark)
    recipe, run = context.recipe, context.run
    if context.passes.waves is None:
        return generate(requests, recipe=recipe, run=run, problems=problems.values(), on_progress=bar).facts()
    return generate_in_waves(requests, recipe=recipe, run=run, problems=problems, on_progress=bar).facts()


def saved_samples(context: StageContext) -> SavedSamples | None:
    """Samples saved by early stopping; None if the first pass was not sampled in waves."""
    saved = context.run.facts("candidates").get("saved")
    return None if saved is None else SavedSamples(**saved)
