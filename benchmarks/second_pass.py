"""Does a second pass with the failed checks help more than fresh samples? Measured with a model that answers.

    llama-server -m qwen2.5-coder-0.5b-instruct.gguf --port 8102 --parallel 8
    python benchmarks/second_pass.py --config configs/humaneval_recorded.yaml --out runs/second_pass \\
        'generators=[{kind: openai, name: qwen, model: qwen, base_url: "http://127.0.0.1:8102/v1", api_key_env: null}]'

The recipe's first generator writes some samples of every problem. The one of lowest penalty is selected, as the paper
does with a large lambda; of equals the most frequent answer, then the first. Where the checks, which know no reference
answer, find something wrong with it, or at most ``--agreement`` of the samples give the same answer, the model is asked
again in three ways: for replies to the feedback of the next pass (as the service sends it, which quotes the answer that
was read), for replies to the same feedback behind the whole text of the selected candidate, and for as many samples
that have seen nothing. Answers are kept in the folder, so a run that was killed goes on.

Intervals: 95 %, percentile bootstrap over problems, 2,000 times, seed 0.
"""

import argparse
import asyncio
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from raydebm.config import Recipe, load_recipe
from raydebm.decision.feedback import exemplar, feedback_messages
from raydebm.decision.sampling.checks import check_candidate
from raydebm.evaluation.pools.pool import Floats
from raydebm.evaluation.report.table_cells import points, with_interval
from raydebm.evaluation.stats.intervals import Bootstrap
from raydebm.generators import Journal, build_generator, collect
from raydebm.generators.passes import PassRequests
from raydebm.labels import label_candidate
from raydebm.pipeline.stages.problems import load_problems
from raydebm.records import Candidate, GenerationRequest, Gold, Problem, ScoredCandidate, Verdict
from raydebm.tasks import task_of

NUM_BOOTSTRAP = 2000
CHECKS_AT_ONCE = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A candidate with what the checks say of it, and whether it is right."""

    scored: ScoredCandidate
    is_right: bool

    @property
    def penalty(self) -> float:
        return self.scored.report.penalty

    @property
    def tokens(self) -> int:
        return self.scored.candidate.completion_tokens or 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One problem."""

    first: tuple[Answer, ...]
    later: dict[str, tuple[Answer, ...]] = field(default_factory=dict)
    """By the way of asking again; empty where nothing was found wrong."""

    @property
    def selected(self) -> Answer:
        return selected(self.first)


REPLY, REPLY_TO_TEXT, FRESH = "reply to the feedback", "reply, the whole text quoted", "sample without feedback"


def votes_for(answer: Answer, answers: Sequence[Answer]) -> int:
    """How many of the answers equal it."""
    key = answer.scored.report.vote_key
    return sum(each.scored.report.vote_key == key for each in answers) if key is not None else 0


def selected(answers: Sequence[Answer]) -> Answer:
    """Lowest penalty, then most votes, then the first."""
    return min(answers, key=lambda answer: (answer.penalty, -votes_for(answer, answers)))


class Study:
    """Asks one generator of a recipe, and checks what it writes."""

    def __init__(self, recipe: Recipe, *, out: Path, num_first: int, num_later: int, agreement: float) -> None:
        self._task = task_of(recipe.task)
        config = recipe.generators[0]
        self._generator = build_generator(config, journal=Journal(out / "journal"))
        self._passes = PassRequests(
            recipe=recipe, task=self._task, generators=(config.name,), num_samples=num_first, num_regenerate=num_later
        )
        self._fresh = replace(self._passes, num_samples=num_first + num_later)
        self._num_first, self._agreement = num_first, agreement

    async def rows(self, problems: Sequence[tuple[Problem, Gold]]) -> list[Row]:
        """Both passes over all problems."""
        first = await self._answers([(*each, self._passes.first(each[0])) for each in problems])
        rows = [Row(first=tuple(answers)) for answers in first]
        doubted = [place for place, answers in enumerate(first) if self._doubted(answers)]
        for name, requests_of in (
            (REPLY, self._replies),
            (REPLY_TO_TEXT, self._replies_to_text),
            (FRESH, lambda problem, _: self._fresh.first(problem)[self._num_first :]),
        ):
            asked = [(*problems[place], requests_of(problems[place][0], first[place])) for place in doubted]
            for place, answers in zip(doubted, await self._answers(asked), strict=True):
                rows[place].later[name] = tuple(answers)
        return rows

    def _doubted(self, answers: Sequence[Answer]) -> bool:
        best = selected(answers)
        return best.penalty > 0 or votes_for(best, answers) <= self._agreement * len(answers)

    def _replies(self, problem: Problem, answers: Sequence[Answer]) -> list[GenerationRequest]:
        return self._passes.later(problem, 2, feedback_messages(self._task, problem, _commented(answers)))

    def _replies_to_text(self, problem: Problem, answers: Sequence[Answer]) -> list[GenerationRequest]:
        """Pass 3, so that these replies have an identity of their own."""
        best = _commented(answers)
        *before, shown, said = feedback_messages(self._task, problem, best)
        assert best is not None
        assert best.candidate.text is not None
        return self._passes.later(problem, 3, (*before, {**shown, "content": best.candidate.text}, said))

    async def _answers(self, asked: Sequence[tuple[Problem, Gold, Sequence[GenerationRequest]]]) -> list[list[Answer]]:
        requests = [request for _, _, own in asked for request in own]
        candidates = {each.candidate_id: each for each in await collect(self._generator, requests)}
        with ThreadPoolExecutor(CHECKS_AT_ONCE) as threads:
            jobs = [
                [threads.submit(self._answer, problem, gold, candidates[request.candidate_id]) for request in own]
                for problem, gold, own in asked
            ]
            return [[job.result() for job in own] for own in jobs]

    def _answer(self, problem: Problem, gold: Gold, candidate: Candidate) -> Answer:
        if candidate.text is None:
            raise SystemExit(f"{problem.problem_id}: {candidate.error}")
        report = check_candidate(self._task, problem, candidate)
        label = label_candidate(self._task, problem, gold, candidate)
        scored = ScoredCandidate(candidate=candidate, report=report, energies=None)
        return Answer(scored=scored, is_right=label.verdict is Verdict.CORRECT)

    async def close(self) -> None:
        await self._generator.aclose()


def _commented(answers: Sequence[Answer]) -> ScoredCandidate | None:
    """What the service would comment on."""
    best = selected(answers).scored
    return best if best.report.parsed else exemplar([answer.scored for answer in answers])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", required=True, help="a recipe; its first generator is asked")
    parser.add_argument("--out", required=True, type=Path, help="folder of what was answered")
    parser.add_argument("--problems", type=int, help="so many of the recipe's problems; all without it")
    parser.add_argument("--first", type=int, default=2, help="samples of the first pass")
    parser.add_argument("--later", type=int, default=1, help="replies of each kind, and samples next to them")
    parser.add_argument("--agreement", type=float, default=0.0, help="doubt answers that at most this share gives")
    parser.add_argument("overrides", nargs="*", help="key=value, as `raydebm run` takes them")
    given = parser.parse_args()
    recipe = load_recipe(given.config, overrides=given.overrides)
    loaded = [(problem, gold) for _, problem, gold in load_problems(recipe)][: given.problems]
    study = Study(recipe, out=given.out, num_first=given.first, num_later=given.later, agreement=given.agreement)
    rows = asyncio.run(_rows(study, loaded))
    print("\n".join(table(rows)))


async def _rows(study: Study, problems: Sequence[tuple[Problem, Gold]]) -> list[Row]:
    try:
        return await study.rows(problems)
    finally:
        await study.close()


def table(rows: Sequence[Row]) -> Iterator[str]:
    """What became of the problems whose selected answer failed a check, and of all."""
    again = [row for row in rows if row.later]
    samples = [answer for row in rows for answer in row.first]
    yield (
        f"{len(rows)} problems, {len(samples)} samples, {np.mean([each.is_right for each in samples]):.1%} of them "
        f"right. {len(again)} of the selected answers are doubted, "
        f"{sum(row.selected.is_right for row in again)} of which are right, and {len(rows) - len(again)} are not, "
        f"{sum(row.selected.is_right for row in rows if not row.later)} of which are right."
    )
    yield ""
    yield "| of these, asked again | right % | wrong turned right | right turned wrong | completion tokens |"
    yield "|---|---:|---:|---:|---:|"
    for name in (REPLY, REPLY_TO_TEXT, FRESH):
        answers = [row.later[name] for row in again]
        share = _share([float(np.mean([each.is_right for each in own])) for own in answers])
        changes = " | ".join(_changed(again, answers, was_right=was_right) for was_right in (False, True))
        yield f"| {name} | {share} | {changes} | {sum(each.tokens for own in answers for each in own):,} |"
    yield ""
    yield "| all problems, selected from | right % | minus the first pass, points |"
    yield "|---|---:|---:|"
    bootstrap = Bootstrap.of(len(rows), num_bootstrap=NUM_BOOTSTRAP, seed=0)
    first = _right(row.first for row in rows)
    for name, right in (
        ("the first pass", first),
        *(
            (f"the first pass, and again: {name}", _right(row.first + row.later.get(name, ()) for row in rows))
            for name in (REPLY, REPLY_TO_TEXT, FRESH)
        ),
    ):
        yield f"| {name} | {with_interval(bootstrap.proportion(right))} | {points(bootstrap.mean(right - first))} |"


def _changed(rows: Sequence[Row], answers: Sequence[Sequence[Answer]], *, was_right: bool) -> str:
    later = [each for row, own in zip(rows, answers, strict=True) if row.selected.is_right == was_right for each in own]
    return f"{sum(each.is_right != was_right for each in later)} of {len(later)}"


def _right(pools: Iterator[tuple[Answer, ...]]) -> Floats:
    return np.array([float(selected(pool).is_right) for pool in pools])


def _share(values: Sequence[float]) -> str:
    if not values:
        return "-"
    return with_interval(Bootstrap.of(len(values), num_bootstrap=NUM_BOOTSTRAP, seed=0).proportion(np.array(values)))


if __name__ == "__main__":
    main()
