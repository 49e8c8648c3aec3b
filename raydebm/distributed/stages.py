"""The pipeline: problems -> candidates -> labels -> pairs -> adapters -> energies -> triage -> evaluation.

Each function is one stage: it makes what it needs from the stage before (running that stage when it is missing), writes
its tables under the run directory, and its manifest last. A manifest holds the fingerprint of everything that went in,
so that a rerun reuses a stage exactly when nothing that matters has changed. Mathematics lives below; this module only
moves rows.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol

from raydebm import __version__
from raydebm.config import Recipe, SplitSource
from raydebm.distributed.generate import generate
from raydebm.distributed.label import label
from raydebm.distributed.score import score
from raydebm.distributed.train import train_ensemble
from raydebm.errors import CheckpointError, PoolError, TaskDataError
from raydebm.evaluation.pools import EvaluatedPool, assemble_pools
from raydebm.evaluation.report import Evaluation, evaluate, write_report
from raydebm.generators.requests import requests_for
from raydebm.identity import content_id
from raydebm.pairs import build_pairs, split_problems, training_groups
from raydebm.records import Candidate, GenerationRequest, Gold, Message, Outcome, Problem, ScoredCandidate
from raydebm.store import (
    CANDIDATES,
    ENERGIES,
    GOLDS,
    LABELS,
    PAIRS,
    PROBLEMS,
    REPORTS,
    RunDir,
    candidate_of,
    energies_of,
    gold_of,
    gold_row,
    label_of,
    pair_row,
    problem_of,
    problem_row,
    report_of,
)
from raydebm.tasks import get_task
from raydebm.triage.calibration import CalibrationResult, calibrate
from raydebm.triage.loop import solve
from raydebm.triage.policy import Policy, policy_of
from raydebm.triage.replay import RecordedChecker, RecordedScorer, ReplaySource

VALIDATION, TEST = "validation", "test"


class Progress(Protocol):
    """Shows how far a stage is. ``(stage)`` starts a bar and returns ``(done, total)``."""

    def __call__(self, stage: str) -> Callable[[int, int], None]: ...


def silent(stage: str) -> Callable[[int, int], None]:
    """A progress that shows nothing."""
    return lambda done, total: None


@dataclass(frozen=True, slots=True, kw_only=True)
class StageReport:
    """One line for people: what a stage did."""

    stage: str
    reused: bool
    seconds: float
    facts: dict[str, Any] = field(default_factory=dict)


def _keep(problem_id: str, source: SplitSource) -> bool:
    low, high = source.id_range
    return low <= int(content_id("split", problem_id, length=8), 16) / 2**32 < high


@dataclass(frozen=True)
class Pipeline:
    """One run of a recipe. Ray must be initialised for the stages that use it (see ``distributed.session``)."""

    recipe: Recipe
    progress: Progress = silent
    on_stage: Callable[[StageReport], None] = lambda report: None  # noqa: E731 - a default, not a function of its own

    @cached_property
    def run(self) -> RunDir:
        return RunDir(self.recipe.resolved_run_dir)

    # ---- bookkeeping -------------------------------------------------------------------------------------------

    def _fingerprint(self, stage: str) -> str:
        """What a stage's output depends on: its own settings and, by construction, all settings upstream."""
        recipe = self.recipe.model_dump(mode="json")
        upstream: dict[str, tuple[str, ...]] = {
            "problems": ("task", "seed"),
            "candidates": ("task", "seed", "generators", "generation"),
            "labels": ("task", "seed", "generators", "generation"),
            "pairs": ("task", "seed", "generators", "generation", "pairs"),
            "scorer": ("task", "seed", "generators", "generation", "pairs", "scorer", "training"),
        }
        keys = upstream.get(stage, (*upstream["scorer"], "triage", "calibration", "evaluation"))
        return content_id(__version__, {key: _without_placement(recipe[key]) for key in keys})

    def _stage(self, stage: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Run ``make`` unless the stage is complete for these settings; returns its manifest."""
        fingerprint = self._fingerprint(stage)
        manifest = self.run.manifest(stage)
        if manifest is not None and manifest.get("fingerprint") == fingerprint:
            self.on_stage(StageReport(stage=stage, reused=True, seconds=0.0, facts=manifest.get("facts", {})))
            return manifest
        self.run.remove(stage, "manifest.json")
        started = time.monotonic()
        facts = make()
        manifest = {"fingerprint": fingerprint, "version": __version__, "facts": facts}
        self.run.finish(stage, manifest)
        self.on_stage(
            StageReport(stage=stage, reused=False, seconds=time.monotonic() - started, facts=facts)
        )
        return manifest

    # ---- problems ----------------------------------------------------------------------------------------------

    def make_problems(self) -> None:
        self._stage("problems", self._make_problems)
        if not self.run.exists("recipe.json"):
            self.run.write_json(self.recipe.model_dump(mode="json", by_alias=True), "recipe.json")

    def _make_problems(self) -> dict[str, Any]:
        task = get_task(self.recipe.task.name)
        problem_rows, gold_rows, seen = [], [], {}
        for split, source in (("train", self.recipe.task.train), (TEST, self.recipe.task.test)):
            loaded = (
                pair
                for pair in task.load(source.split, source=source.source, seed=self.recipe.seed)
                if _keep(pair[0].problem_id, source)
            )
            count = 0
            for problem, gold in loaded:
                if source.limit is not None and count >= source.limit:
                    break
                if seen.setdefault(problem.problem_id, split) != split:
                    raise TaskDataError(
                        f"problem {problem.problem_id!r} is in the train and the test part of task {task.name!r}; "
                        "choose disjoint sources or id_range"
                    )
                problem_rows.append(problem_row(problem, split))
                gold_rows.append(gold_row(gold))
                count += 1
            if count == 0:
                raise TaskDataError(
                    f"task {task.name!r}: no problems for {split} from source {source.source!r} with limit {source.limit}"
                )
        self.run.write_json(self.recipe.model_dump(mode="json", by_alias=True), "recipe.json")
        self.run.write_table(gold_rows, GOLDS, "problems", "golds.parquet")
        self.run.write_table(problem_rows, PROBLEMS, "problems", "problems.parquet")
        return {"train": sum(row["split"] == "train" for row in problem_rows), "test": _count(problem_rows, TEST)}

    def problems(self) -> dict[str, Problem]:
        rows = self.run.read_table(PROBLEMS, "problems", "problems.parquet")
        return {row["problem_id"]: problem_of(row) for row in rows}

    def golds(self) -> dict[str, Gold]:
        return {row["problem_id"]: gold_of(row) for row in self.run.read_table(GOLDS, "problems", "golds.parquet")}

    def splits(self) -> dict[str, list[str]]:
        """Problem ids of ``train``, ``validation`` and ``test``. No id is in two of them."""
        rows = self.run.read_table(PROBLEMS, "problems", "problems.parquet")
        of_train = [row["problem_id"] for row in rows if row["split"] == "train"]
        train, validation = split_problems(
            of_train, validation_frac=self.recipe.pairs.validation_frac, seed=self.recipe.seed
        )
        return {
            "train": train,
            VALIDATION: validation,
            TEST: [row["problem_id"] for row in rows if row["split"] == TEST],
        }

    # ---- candidates --------------------------------------------------------------------------------------------

    def requests(self, problems: Iterable[Problem]) -> list[GenerationRequest]:
        """Every request of the first pass: samples of each generator, and its greedy one."""
        task = get_task(self.recipe.task.name)
        generation = self.recipe.generation
        found: list[GenerationRequest] = []
        for problem in problems:
            messages = task.messages(problem)
            for generator in self.recipe.generators:
                max_tokens = generator.max_tokens or generation.max_tokens or task.defaults.max_tokens
                counts = [(False, generation.num_samples if generator.num_samples is None else generator.num_samples)]
                if generation.greedy and generator.kind != "recorded":
                    counts.append((True, 1))
                for greedy, num_samples in counts:
                    found += requests_for(
                        problem,
                        messages,
                        generator=generator.name,
                        sampling=generation.sampling(max_tokens=max_tokens, greedy=greedy),
                        num_samples=num_samples,
                        run_seed=self.recipe.seed,
                    )
        return found

    def make_candidates(self) -> None:
        self.make_problems()
        self._stage("candidates", self._make_candidates)

    def _make_candidates(self) -> dict[str, Any]:
        requests = self.requests(self.problems().values())
        summary = generate(
            requests, recipe=self.recipe, run=self.run, stage="candidates", on_progress=self.progress("candidates")
        )
        return summary.facts()

    def candidates(self, stage: str = "candidates") -> list[Candidate]:
        return [candidate_of(row) for row in self.run.read_table(CANDIDATES, stage, "candidates.parquet")]

    # ---- labels and pairs --------------------------------------------------------------------------------------

    def make_labels(self) -> None:
        self.make_candidates()
        self._stage("labels", lambda: self._label("candidates", "labels"))

    def _label(self, source: str, stage: str) -> dict[str, Any]:
        summary = label(
            self.problems(),
            self.golds(),
            self.candidates(source),
            recipe=self.recipe,
            run=self.run,
            stage=stage,
            on_progress=self.progress(stage),
        )
        return summary.facts()

    def make_pairs(self) -> None:
        self.make_labels()
        self._stage("pairs", self._make_pairs)

    def _make_pairs(self) -> dict[str, Any]:
        labels = [label_of(row) for row in self.run.read_table(LABELS, "labels", "labels.parquet")]
        splits = self.splits()
        facts: dict[str, Any] = {}
        for split in ("train", VALIDATION):
            wanted = set(splits[split])
            pairs = build_pairs(
                [candidate for candidate in self.candidates() if candidate.problem_id in wanted],
                [found for found in labels if found.problem_id in wanted],
                config=self.recipe.pairs,
                seed=self.recipe.seed,
            )
            self.run.write_table(map(pair_row, pairs), PAIRS, "pairs", f"{split}.parquet")
            facts[split] = {"pairs": len(pairs), "problems": len({pair.problem_id for pair in pairs})}
        return facts

    # ---- the scorer --------------------------------------------------------------------------------------------

    def train(self) -> None:
        """Train the five adapters; makes candidates, labels and pairs first where they are missing."""
        self.make_pairs()
        self._stage("scorer", self._train)

    def _train(self) -> dict[str, Any]:
        from raydebm.store import pair_of

        problems, candidates = self.problems(), self.candidates()
        groups = {
            split: training_groups(
                [pair_of(row) for row in self.run.read_table(PAIRS, "pairs", f"{split}.parquet")], candidates, problems
            )
            for split in ("train", VALIDATION)
        }
        summary = train_ensemble(
            recipe=self.recipe,
            run=self.run,
            train=groups["train"],
            validation=groups[VALIDATION],
            stage="scorer",
            on_progress=self.progress("scorer"),
        )
        return summary.facts()

    def make_energies(self) -> None:
        """Energies of all validation and test candidates."""
        self.train()
        self._stage("energies", lambda: self._score(self._pool_candidates(), "energies"))

    def _pool_candidates(self) -> list[Candidate]:
        splits = self.splits()
        wanted = {*splits[VALIDATION], *splits[TEST]}
        return [found for found in self.candidates() if found.problem_id in wanted and not found.is_greedy]

    def _score(self, candidates: Sequence[Candidate], stage: str) -> dict[str, Any]:
        if not self.run.exists("scorer", "ensemble.json"):
            raise CheckpointError(f"{self.run.uri('scorer')} holds no ensemble; run `raydebm train` first")
        summary = score(
            self.problems(),
            candidates,
            checkpoint=self.run.uri("scorer"),
            recipe=self.recipe,
            run=self.run,
            stage=stage,
            on_progress=self.progress(stage),
        )
        return summary.facts()

    # ---- triage ------------------------------------------------------------------------------------------------

    @property
    def can_regenerate(self) -> bool:
        """Recorded pools have no generator that could answer feedback."""
        return self._regenerator.kind != "recorded" and self.recipe.evaluation.two_pass

    @property
    def _regenerator(self) -> Any:
        wanted = self.recipe.triage.regenerate_with or self.recipe.generators[0].name
        return next(generator for generator in self.recipe.generators if generator.name == wanted)

    def _requests_of(
        self, problem: Problem, pass_index: int, messages: tuple[Message, ...] | None
    ) -> list[GenerationRequest]:
        """The requests of one pass, the same for a job, for the service and for a replay."""
        if pass_index == 1 or messages is None:
            return [request for request in self.requests([problem]) if not request.sampling.is_greedy]
        task, generator = get_task(self.recipe.task.name), self._regenerator
        max_tokens = generator.max_tokens or self.recipe.generation.max_tokens or task.defaults.max_tokens
        return requests_for(
            problem,
            messages,
            generator=generator.name,
            sampling=self.recipe.generation.sampling(max_tokens=max_tokens),
            num_samples=self.recipe.triage.num_regenerate,
            run_seed=self.recipe.seed,
            pass_index=pass_index,
        )

    def base_policy(self) -> Policy:
        policy = policy_of(self.recipe.triage, get_task(self.recipe.task.name).defaults)
        return policy if self.can_regenerate else replace(policy, max_passes=1)

    def recorded(self, split: str) -> "RecordedPools":
        """All recorded candidates of a split, first and later passes, with checks and energies."""
        wanted = set(self.splits()[split])
        stages = [("candidates", "labels", "energies")]
        rounds = 1
        while self.run.manifest(f"regenerated/{split}-{rounds}") is not None:
            stages.append((f"regenerated/{split}-{rounds}",) * 3)
            rounds += 1
        pools = RecordedPools()
        for candidate_stage, label_stage, energy_stage in stages:
            pools.add(
                [found for found in self.candidates(candidate_stage) if found.problem_id in wanted],
                [report_of(row) for row in self.run.read_table(REPORTS, label_stage, "reports.parquet")],
                [label_of(row) for row in self.run.read_table(LABELS, label_stage, "labels.parquet")],
                [energies_of(row) for row in self.run.read_table(ENERGIES, energy_stage, "energies.parquet")],
            )
        return pools

    def _replay(self, split: str, policy: Policy) -> tuple[list[Outcome], list[GenerationRequest], "RecordedPools"]:
        """Run the loop over recorded candidates; also returns the requests that were not recorded."""
        pools, task = self.recorded(split), get_task(self.recipe.task.name)
        problems = self.problems()
        source = ReplaySource(pools.candidates, requests_of=self._requests_of)
        checker, scorer = RecordedChecker(pools.reports), RecordedScorer(pools.energies)

        async def run_all() -> list[Outcome]:
            return [
                await solve(problems[problem_id], task=task, policy=policy, source=source, checker=checker, scorer=scorer)
                for problem_id in self.splits()[split]
            ]

        outcomes = asyncio.run(run_all())
        return outcomes, list(source.missing), pools

    def _complete_passes(self, split: str, policies: Sequence[Policy]) -> None:
        """Draw, label, check and score what the policies would ask for in later passes, round by round."""
        if not self.can_regenerate:
            return
        number = 1
        while self.run.manifest(f"regenerated/{split}-{number}") is not None:
            number += 1
        for _ in range(max(policy.max_passes for policy in policies) - 1):
            missing: dict[str, GenerationRequest] = {}
            for policy in policies:
                missing |= {request.candidate_id: request for request in self._replay(split, policy)[1]}
            if not missing:
                return
            stage = f"regenerated/{split}-{number}"
            generate(
                list(missing.values()),
                recipe=self.recipe,
                run=self.run,
                stage=stage,
                on_progress=self.progress(f"pass 2 ({split})"),
            )
            self.run.remove(stage, "manifest.json")
            self._label(stage, stage)
            self.run.remove(stage, "manifest.json")
            self._score(self.candidates(stage), stage)
            self.run.finish(stage, {"fingerprint": self._fingerprint("energies"), "requests": len(missing)})
            number += 1

    def _drop_stale_passes(self) -> None:
        """Later passes answer to an ensemble's picks; another ensemble asks for others."""
        for split in (VALIDATION, TEST):
            number = 1
            while (manifest := self.run.manifest(f"regenerated/{split}-{number}")) is not None:
                if manifest.get("fingerprint") != self._fingerprint("energies"):
                    self.run.remove(f"regenerated/{split}-{number}", "manifest.json")
                number += 1

    def make_policy(self) -> None:
        """Choose lambda and both thresholds on the validation split."""
        self.make_energies()
        self._stage("calibration", self._make_policy)

    def _make_policy(self) -> dict[str, Any]:
        base, settings = self.base_policy(), self.recipe.calibration
        if not settings.enabled:
            self.run.write_json(base.to_json(), "calibration", "policy.json")
            return {"enabled": False}
        self._drop_stale_passes()
        lambdas = sorted({base.lambda_, *settings.lambdas})
        always = [replace(base, lambda_=lambda_, theta_sigma=0.0, theta_abstain=1e9) for lambda_ in lambdas]
        self._complete_passes(VALIDATION, always)
        pools = self.recorded(VALIDATION)
        problems, splits = self.problems(), self.splits()
        result: CalibrationResult = calibrate(
            [problems[problem_id] for problem_id in splits[VALIDATION]],
            task=get_task(self.recipe.task.name),
            base=base,
            candidates=pools.candidates,
            reports=pools.reports,
            energies=pools.energies,
            labels=pools.labels,
            requests_of=self._requests_of,
            lambdas=lambdas,
            num_thresholds=settings.num_thresholds,
            max_abstain_frac=settings.max_abstain_frac,
        )
        self.run.write_json(result.to_json(), "calibration", "grid.json")
        self.run.write_json(result.policy.to_json(), "calibration", "policy.json")
        return result.facts()

    def policy(self) -> Policy:
        return Policy.from_json(self.run.read_json("calibration", "policy.json"))

    # ---- evaluation --------------------------------------------------------------------------------------------

    def evaluate(self) -> Evaluation:
        """Compare all selectors on the test split, and write the report."""
        self.make_policy()
        self._stage("evaluation", self._evaluate)
        return Evaluation.from_json(self.run.read_json("evaluation", "metrics.json"))

    def _evaluate(self) -> dict[str, Any]:
        policy = self.policy()
        self._complete_passes(TEST, [policy])
        outcomes, missing, pools = self._replay(TEST, policy)
        if missing:
            raise PoolError(f"{len(missing)} candidates of later passes are missing; run `raydebm evaluate` again")
        curves = {
            adapter.name: self.run.read_json("scorer", adapter.name, "training.json")
            for adapter in self.recipe.scorer.adapters
        }
        result = evaluate(
            self.evaluated_pools(TEST),
            validation=self.evaluated_pools(VALIDATION),
            policy=policy,
            adapters=[adapter.name for adapter in self.recipe.scorer.adapters],
            outcomes=outcomes,
            labels=pools.labels,
            config=self.recipe.evaluation,
            seed=self.recipe.seed,
            title=self.recipe.name,
            task=self.recipe.task.name,
        )
        write_report(result, self.run, "evaluation", training=curves)
        return result.facts()

    def evaluated_pools(self, split: str) -> list[EvaluatedPool]:
        problems, pools = self.problems(), self.recorded(split)
        return assemble_pools(
            [problems[problem_id] for problem_id in self.splits()[split]],
            candidates=[found for found in pools.candidates.values() if found.pass_index == 1],
            reports=pools.reports,
            energies=pools.energies,
            labels=pools.labels,
            shuffle_seed=self.recipe.evaluation.shuffle_seed,
        )

    def outcomes(self, split: str = TEST) -> list[Outcome]:
        """The loop's outcome for every problem of a split, replayed under the calibrated policy."""
        return self._replay(split, self.policy())[0]


@dataclass(slots=True)
class RecordedPools:
    """Candidates with what is known of them, by candidate id."""

    candidates: dict[str, Candidate] = field(default_factory=dict)
    reports: dict[str, Any] = field(default_factory=dict)
    labels: dict[str, Any] = field(default_factory=dict)
    energies: dict[str, Any] = field(default_factory=dict)

    def add(self, candidates: Iterable[Candidate], reports: Iterable[Any], labels: Iterable[Any], energies: Any) -> None:
        self.candidates |= {found.candidate_id: found for found in candidates}
        self.reports |= {found.candidate_id: found for found in reports}
        self.labels |= {found.candidate_id: found for found in labels}
        self.energies |= {found.candidate_id: found for found in energies if found is not None}


def _count(rows: Iterable[dict[str, Any]], split: str) -> int:
    return sum(row["split"] == split for row in rows)


def _without_placement(section: Any) -> Any:
    """A recipe section without what only says where and how fast it runs: that must not invalidate results."""
    placement = {
        "device", "batch_size_rows", "max_in_flight", "num_in_flight", "num_processes", "timeout_s", "max_retries",
        "requests_per_minute", "micro_batch_tokens", "max_usd",
    }  # fmt: skip
    if isinstance(section, dict):
        return {key: _without_placement(value) for key, value in section.items() if key not in placement}
    if isinstance(section, list):
        return [_without_placement(value) for value in section]
    return section


__all__ = ["Pipeline", "Progress", "ScoredCandidate", "StageReport", "silent"]
