"""Style swap: the change in energy of a correct answer when it is reworded. A change means that wording matters."""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from random import Random

import numpy as np

from raydebm.config import GeneratorConfig, Recipe, RecordedGenerator
from raydebm.decision.table import PoolTable
from raydebm.errors import ConfigError, PoolError, ScoringError
from raydebm.evaluation.stats.intervals import Bootstrap, Estimate
from raydebm.generators import Secret, build_generator, check_keys
from raydebm.generators.account import journal_and_budget
from raydebm.generators.endpoint.openai_api import EndpointAccess
from raydebm.generators.requests import Generator, collect
from raydebm.identity import seed_for
from raydebm.records import Candidate, GenerationRequest, Gold, Label, Problem, Sampling, Verdict
from raydebm.run.directory import RunDir
from raydebm.scorer.texts import TextScorer, scores_or_errors
from raydebm.tasks import task_of
from raydebm.tasks.base import Task
from raydebm.tasks.labels import label_candidate

Checker = Callable[[Problem, Candidate], Label]
"""Function that labels a rewritten text: ``labels.label_candidate`` with the task and the golds bound."""

SYSTEM = (
    "You rewrite solutions. Keep the content exactly: the same method, the same steps in the same order, the same "
    "variable names, the same numbers and the same final answer in a form that is marked in the same way. Keep code "
    "equivalent. Change only how it is presented. Reply with the rewritten solution and nothing else."
)
OWN_STYLE = "Present it the way you yourself usually would: wording, headings, formulas, layout, comments."
LIKE_EXAMPLES = "Present it the way these examples of one author do: wording, headings, formulas, layout, comments."


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewriter:
    """Generator that rewrites answers in one style."""

    style: str
    generator: Generator
    """The generator of that style (as in the paper), or another generator that is given ``examples``."""
    examples: tuple[str, ...] = ()
    """Answers that show the style. Empty if the generator writes in its own style."""


MAX_PROBLEMS = 40
"""Maximum number of problems with a correct answer of the source, sampled with the seed (paper)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SwappedText:
    problem_id: str
    candidate_id: str
    style: str
    text: str | None
    verdict: Verdict
    """Verdict of the rewritten text. ``UNLABELED`` if there is no text."""
    before: float | None
    after: float | None
    error: str | None = None

    @property
    def change(self) -> float | None:
        """mu after minus before, for rewritings that are still correct. Above 0, the energy disfavours the new
        style."""
        if self.verdict is not Verdict.CORRECT or self.before is None or self.after is None:
            return None
        return self.after - self.before


@dataclass(frozen=True, slots=True, kw_only=True)
class SwapRow:
    style: str
    is_control: bool
    """Whether it is the source's own style, which measures the effect of rewriting itself."""
    num_asked: int
    num_failed: int
    num_incorrect: int
    """Rewritings that are no longer correct, excluded from the change."""
    num_unlabeled: int
    change: Estimate
    """Mean change in mu. Energies of correct answers are comparable here, because the content is the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SwapResult:
    source: str
    rows: tuple[SwapRow, ...]
    """One row per style, then ``(all other styles)``."""
    texts: tuple[SwappedText, ...]


async def style_swap(
    pools: PoolTable,
    rewriters: Sequence[Rewriter],
    *,
    source: str,
    scorer: TextScorer,
    check: Checker,
    max_tokens: int,
    seed: int,
) -> SwapResult:
    """Rewrite correct answers of one generator in other styles, keep those still correct, and compare energies.

    Args:
        source: Generator whose answers are rewritten, such as one that is picked too often.
        rewriters: One rewriter per style. The source's own style is the control.

    Raises:
        PoolError: the source has no correct answer.
    """
    chosen = _correct_answers(pools, source, seed)
    if not chosen:
        raise PoolError(f"generator {source!r} has no correct answer in these pools, so there is nothing to rewrite")
    before = _energies(scorer, [(problem.prompt, candidate.text or "") for problem, candidate in chosen])
    texts: list[SwappedText] = []
    for rewriter in rewriters:
        requests = [_request(problem, candidate, rewriter, max_tokens, seed) for problem, candidate in chosen]
        replies = await collect(rewriter.generator, requests)
        pairs = [(problem.prompt, reply.text or "") for (problem, _), reply in zip(chosen, replies, strict=True)]
        after = _energies(scorer, pairs)
        for (problem, candidate), reply, old, new in zip(chosen, replies, before, after, strict=True):
            texts.append(
                SwappedText(
                    problem_id=problem.problem_id,
                    candidate_id=candidate.candidate_id,
                    style=rewriter.style,
                    text=reply.text,
                    verdict=check(problem, reply).verdict,
                    before=old,
                    after=None if reply.text is None else new,
                    error=reply.error,
                )
            )
    return _result(source, texts, seed=seed)


def _correct_answers(pools: PoolTable, source: str, seed: int) -> list[tuple[Problem, Candidate]]:
    """One correct answer of the source per problem."""
    right = np.flatnonzero((pools.correct == 1) & pools.is_by(source))
    _, first = np.unique(pools.pool_of_row[right], return_index=True)
    answers = [(pools.problems[pools.pool_of_row[row]], pools.candidates[row].candidate) for row in right[first]]
    answers.sort(key=lambda answer: answer[0].problem_id)
    if len(answers) > MAX_PROBLEMS:
        places = Random(seed_for(seed, "swap", source)).sample(range(len(answers)), MAX_PROBLEMS)
        answers = [answers[index] for index in sorted(places)]
    return answers


def _request(
    problem: Problem, candidate: Candidate, rewriter: Rewriter, max_tokens: int, seed: int
) -> GenerationRequest:
    parts = [f"Problem:\n{problem.prompt}", f"Solution:\n{candidate.text}"]
    parts += [f"Example {number}:\n{text}" for number, text in enumerate(rewriter.examples, start=1)]
    parts.append(LIKE_EXAMPLES if rewriter.examples else OWN_STYLE)
    return GenerationRequest(
        task=problem.task,
        problem_id=problem.problem_id,
        generator=rewriter.generator.name,
        messages=({"role": "system", "content": SYSTEM}, {"role": "user", "content": "\n\n".join(parts)}),
        sampling=Sampling(temperature=0.0, top_p=1.0, max_tokens=max_tokens),
        seed=seed_for(seed, "swap", candidate.candidate_id, rewriter.style),
    )


def _energies(scorer: TextScorer, texts: Sequence[tuple[str, str]]) -> list[float | None]:
    """mu of each text. None if it cannot be scored."""
    return [
        None if isinstance(result, ScoringError) else sum(result.members) / len(result.members)
        for result in scores_or_errors(scorer, texts)
    ]


def _result(source: str, texts: Sequence[SwappedText], *, seed: int) -> SwapResult:
    problems = sorted({text.problem_id for text in texts})
    bootstrap = Bootstrap.of(len(problems), seed=seed)
    by_style: dict[str, list[SwappedText]] = {}
    for text in texts:
        by_style.setdefault(text.style, []).append(text)
    if len(by_style.keys() - {source}) > 1:
        by_style["(all other styles)"] = [text for text in texts if text.style != source]
    rows = []
    for style, own in by_style.items():
        place = np.array([problems.index(text.problem_id) for text in own])
        change = np.array([text.change for text in own], dtype=np.float64)  # None becomes NaN
        known = ~np.isnan(change)
        sums, counts = (np.bincount(place[known], weights, len(problems)) for weights in (change[known], None))
        verdicts = Counter(text.verdict for text in own if text.text is not None)
        rows.append(
            SwapRow(
                style=style,
                is_control=style == source,
                num_asked=len(own),
                num_failed=sum(text.text is None for text in own),
                num_incorrect=verdicts[Verdict.INCORRECT],
                num_unlabeled=verdicts[Verdict.UNLABELED],
                change=bootstrap.ratio(np.where(counts > 0, sums, np.nan), counts.astype(np.float64)),
            )
        )
    return SwapResult(source=source, rows=tuple(rows), texts=tuple(texts))


JOURNAL = ("confounding", "journal")
NUM_EXAMPLES = 3
"""Number of correct answers to validation problems shown to ``confounding.rewriter`` per style."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SwapInputs:
    """Inputs of the swap from a run, except the scorer. They are sent to the node that has the scorer."""

    recipe: Recipe
    run: RunDir
    keys: Mapping[str, Secret]
    test: PoolTable
    validation: PoolTable
    """Pools whose correct answers are examples of a style."""
    golds: Mapping[str, Gold]


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
                    max_tokens=recipe.generation.max_tokens or 2048,
                    seed=recipe.seed,
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

    def writer(config: GeneratorConfig) -> Generator:
        access = EndpointAccess(budget=budget, key=inputs.keys.get(config.name))
        return build_generator(config, access=access, journal=journal)

    if settings.rewriter is not None:
        generator = writer(settings.rewriter)
        rewriters = [
            Rewriter(style=config.name, generator=generator, examples=shown)
            for config in recipe.generators
            if (shown := _examples(inputs.validation, config.name))
        ]
    else:
        rewriters = [
            Rewriter(style=config.name, generator=writer(config))
            for config in recipe.generators
            if not isinstance(config, RecordedGenerator) and config.num_samples != 0  # 0 samples: no style in the pool
        ]
    if not rewriters:
        raise ConfigError(
            "confounding.swap: no generator of the recipe can rewrite, or confounding.rewriter has no correct answer "
            "to a validation problem as an example; name a rewriter, or use more problems"
        )
    return rewriters


def _examples(pools: PoolTable, generator: str) -> tuple[str, ...]:
    """Correct answers of a generator, one per problem, in an order independent of the tables'."""
    texts: dict[str, str] = {}
    rows = np.flatnonzero((pools.correct == 1) & pools.is_by(generator))
    for row in rows[np.argsort(pools.place_of_row[rows], kind="stable")]:
        texts.setdefault(pools.problems[pools.pool_of_row[row]].problem_id, pools.candidates[row].candidate.text or "")
    return tuple(texts[problem_id] for problem_id in sorted(texts)[:NUM_EXAMPLES])
