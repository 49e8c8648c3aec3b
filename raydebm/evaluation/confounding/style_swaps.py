"""Style swap of a run: the answers to rewrite, the styles, and the models that rewrite them (``confounding`` in a
recipe).

In:   a run's pools and golds, a scorer of texts.
Out:  one ``SwapResult`` for each generator whose correct answers are rewritten. Rewritings are journaled, so a second
      report sends no requests.
"""

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial

import numpy as np

from raydebm.config import Recipe, RecordedGenerator
from raydebm.decision.table import PoolTable
from raydebm.errors import ConfigError
from raydebm.evaluation.confounding.swap import Rewriter, SwapResult, SwapSettings, style_swap
from raydebm.generators import EndpointAccess, Secret, build_generator, check_keys
from raydebm.generators.account import journal_and_budget
from raydebm.records import Candidate, Gold, Label, Problem
from raydebm.run.directory import RunDir
from raydebm.scorer.texts import TextScorer
from raydebm.tasks import task_of
from raydebm.tasks.base import Task
from raydebm.tasks.labels import label_candidate

JOURNAL = ("confounding", "journal")
NUM_EXAMPLES = 3
"""Number of correct answers to validation problems shown to ``confounding.rewriter`` per style."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SwapInputs:
    """Inputs of the swap from a run, except the scorer. Sent to the node that has one."""

    recipe: Recipe
    run: RunDir
    keys: Mapping[str, Secret]
    test: PoolTable
    """Pools whose correct answers are rewritten."""
    validation: PoolTable
    """Pools whose correct answers are examples of a style."""
    golds: Mapping[str, Gold]
    """Golds by problem id."""


def swap_keys(recipe: Recipe) -> dict[str, Secret]:
    """Keys of the rewriting endpoints. Call early to find missing keys before anything starts.

    Raises:
        MissingKeyError: a key is not in the environment.
    """
    settings = recipe.confounding
    if not settings.swap:
        return {}
    return check_keys(recipe.generators if settings.rewriter is None else [settings.rewriter])


def style_swaps(inputs: SwapInputs, scorer: TextScorer) -> tuple[SwapResult, ...]:
    """One result for each generator of ``confounding.swap``. Empty if the recipe names none.

    Raises:
        PoolError: such a generator has no correct answer among the test problems.
        ConfigError: no generator can rewrite.
        GenerationError: a local model cannot be loaded.
    """
    return asyncio.run(_swaps(inputs, scorer)) if inputs.recipe.confounding.swap else ()


async def _swaps(inputs: SwapInputs, scorer: TextScorer) -> tuple[SwapResult, ...]:
    recipe, settings = inputs.recipe, inputs.recipe.confounding
    async with AsyncExitStack() as stack:
        rewriters = _rewriters(inputs)
        for generator in {id(rewriter.generator): rewriter.generator for rewriter in rewriters}.values():
            stack.push_async_callback(generator.aclose)
        return tuple(
            [
                await style_swap(
                    inputs.test,
                    rewriters,
                    source=source,
                    scorer=scorer,
                    check=partial(_check, task=task_of(recipe.task), golds=inputs.golds),
                    settings=SwapSettings(
                        max_tokens=recipe.generation.max_tokens or 2048,
                        num_bootstrap=recipe.evaluation.num_bootstrap,
                        seed=recipe.seed,
                    ),
                )
                for source in settings.swap
            ]
        )


def _check(problem: Problem, candidate: Candidate, *, task: Task, golds: Mapping[str, Gold]) -> Label:
    return label_candidate(task, problem, golds.get(problem.problem_id), candidate)


def _rewriters(inputs: SwapInputs) -> list[Rewriter]:
    """One rewriter per style: the generators themselves if they accept requests, or one model with examples."""
    recipe, settings = inputs.recipe, inputs.recipe.confounding
    journal, budget = journal_and_budget(recipe, inputs.run, *JOURNAL)
    if settings.rewriter is not None:
        key = inputs.keys.get(settings.rewriter.name)
        writer = build_generator(settings.rewriter, access=EndpointAccess(budget=budget, key=key), journal=journal)
        rewriters = [
            Rewriter(style=config.name, generator=writer, examples=shown)
            for config in recipe.generators
            if (shown := _examples(inputs.validation, config.name))
        ]
    else:
        rewriters = [
            Rewriter(
                style=config.name,
                generator=build_generator(
                    config, access=EndpointAccess(budget=budget, key=inputs.keys.get(config.name)), journal=journal
                ),
            )
            for config in recipe.generators
            if not isinstance(config, RecordedGenerator) and config.num_samples != 0  # these have no style in the pool
        ]
    if not rewriters:
        raise ConfigError(
            "confounding.swap: no generator of the recipe can be asked to rewrite, or none has a correct answer among "
            "the validation problems that confounding.rewriter could be shown; give a rewriter, or more problems"
        )
    return rewriters


def _examples(pools: PoolTable, generator: str) -> tuple[str, ...]:
    """Correct answers of a generator, one per problem, in an order independent of the tables'."""
    texts: dict[str, str] = {}
    rows = np.flatnonzero((pools.correct == 1) & pools.is_by(generator))
    for row in rows[np.argsort(pools.place_of_row[rows], kind="stable")]:
        texts.setdefault(pools.problems[pools.pool_of_row[row]].problem_id, pools.candidates[row].candidate.text or "")
    return tuple(texts[problem_id] for problem_id in sorted(texts)[:NUM_EXAMPLES])
