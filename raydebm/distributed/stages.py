"""The pipeline: problems -> candidates -> labels -> pairs -> adapters -> energies -> triage -> evaluation.

Each function is one stage: it makes what it needs from the stage before (running that stage when it is missing), writes
its tables under the run directory, and its manifest last. A manifest holds the fingerprint of everything that went in,
so that a rerun reuses a stage exactly when nothing that matters has changed. Mathematics lives below; this module only
moves rows.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from raydebm.config import EvaluationConfig, Recipe
from raydebm.decision.policy import Policy, policy_of
from raydebm.decision.replay import RecordedChecker, RecordedScorer, RecordedScores, ReplaySource, replay
from raydebm.distributed.baselines import check_judges, forget_ratings, scores_of
from raydebm.distributed.evidence import add_evidence, score_evidence, score_pass, score_run
from raydebm.distributed.fingerprints import current_manifest, making_of, new_manifest, stage_fingerprint
from raydebm.distributed.generate import generate, generate_in_waves
from raydebm.distributed.label import label
from raydebm.distributed.loading import answerable, load_problems
from raydebm.distributed.policy_stage import adapters_out_of_bag, calibrate_thresholds, fit_run_policy
from raydebm.distributed.recorded import RecordedPools
from raydebm.distributed.score import score
from raydebm.distributed.spending import SHARED_PASSES, Account, judge_prices
from raydebm.distributed.train import train_ensemble
from raydebm.errors import CheckpointError, ConfigError
from raydebm.evaluation.pools import EvaluatedPool, assemble_pools
from raydebm.evaluation.results import Evaluation, evaluate
from raydebm.generators import check_keys
from raydebm.generators.passes import PassRequests
from raydebm.generators.tally import SavedSamples
from raydebm.identity import content_id
from raydebm.pairs import build_pairs, held_out, split_problems, training_groups, with_defaults
from raydebm.records import Candidate, GenerationRequest, Gold, Outcome, Problem
from raydebm.store import (
    CANDIDATES,
    GOLDS,
    LABELS,
    PAIRS,
    PROBLEMS,
    RunDir,
    candidate_of,
    gold_of,
    gold_row,
    label_of,
    pair_of,
    pair_row,
    problem_of,
    problem_row,
)
from raydebm.tasks import task_of

_LOG = logging.getLogger(__name__)

VALIDATION, TEST = "validation", "test"
REPAIRED = "repaired.json"
"""This file stands in the run directory of a repaired scorer."""

IMPORTED = "imported.json"
"""This file stands in the run directory of imported decisions, whose problems, candidates and labels are not made."""
_OF_IMPORT = ("problems", "candidates", "labels")


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


@dataclass(frozen=True)
class Pipeline:
    """One run of a recipe. Ray must be initialised for the stages that use it (see ``distributed.session``)."""

    recipe: Recipe
    progress: Progress = silent
    command: str | None = None
    """How to repeat this run, for the report; None: this process's command line."""
    on_stage: Callable[[StageReport], None] = lambda report: None
    payer: RunDir | None = None
    """The run whose journals of later passes and judges this one shares with others on the same candidates, so that
    nothing is paid twice and one budget holds for all; None: this run."""

    @cached_property
    def run(self) -> RunDir:
        root = self.recipe.resolved_run_dir
        # Workers have a working directory of their own, so that a relative path would mean another place there.
        return RunDir(root if "://" in root else str(Path(root).resolve()))

    # ---- bookkeeping -------------------------------------------------------------------------------------------

    def basis(self, stage: str) -> str:
        """An id of what the stage is now, for what is made from it outside the row of stages."""
        return content_id(stage_fingerprint(stage, self.recipe), making_of(stage, self.run))

    def _stage(self, stage: str, make: Callable[[], dict[str, Any]]) -> None:
        """Run ``make`` unless the stage is there as the recipe would make it now."""
        current = current_manifest(stage, self.recipe, self.run)
        if current is not None:
            self.on_stage(StageReport(stage=stage, reused=True, seconds=0.0, facts=current.get("facts", {})))
            return
        if stage in _OF_IMPORT and self.run.exists(IMPORTED):
            raise ConfigError(
                f"{self.run.root} holds imported decisions, and its {stage} belong to other settings, files or "
                "versions than this recipe's; use its recipe.json, or run `raydebm import-decisions` again"
            )
        self.run.remove(stage, "manifest.json")
        started = time.monotonic()
        facts = make()
        self.run.finish(stage, new_manifest(stage, self.recipe, self.run, facts=facts))
        self.on_stage(StageReport(stage=stage, reused=False, seconds=time.monotonic() - started, facts=facts))

    # ---- problems ----------------------------------------------------------------------------------------------

    def make_problems(self) -> None:
        self._stage("problems", self._make_problems)
        self.run.write_json(self.recipe.model_dump(mode="json", by_alias=True), "recipe.json")

    def _make_problems(self) -> dict[str, Any]:
        loaded = list(load_problems(self.recipe))
        kept = answerable(self.recipe, loaded)
        dropped = len(loaded) - len(kept)
        self.run.write_table((gold_row(gold) for _, _, gold in kept), GOLDS, "problems", "golds.parquet")
        rows = [problem_row(problem, split) for split, problem, _ in kept]
        self.run.write_table(rows, PROBLEMS, "problems", "problems.parquet")
        return {**Counter(split for split, _, _ in kept), **({"not_recorded": dropped} if dropped else {})}

    def problems(self) -> dict[str, Problem]:
        rows = self.run.read_table(PROBLEMS, "problems", "problems.parquet")
        return {row["problem_id"]: problem_of(row) for row in rows}

    def golds(self) -> dict[str, Gold]:
        return {row["problem_id"]: gold_of(row) for row in self.run.read_table(GOLDS, "problems", "golds.parquet")}

    def splits(self) -> dict[str, list[str]]:
        """Problem ids of ``train``, ``validation`` and ``test``. No id is in two of them."""
        rows = self.run.read_table(PROBLEMS, "problems", "problems.parquet")
        ids, test = [row["problem_id"] for row in rows], held_out(rows, self.recipe)
        train, validation = split_problems(
            (problem_id for problem_id in ids if problem_id not in test),
            validation_frac=self.recipe.pairs.validation_frac,
            seed=self.recipe.training_seed,
        )
        return {
            "train": train,
            VALIDATION: validation,
            TEST: [problem_id for problem_id in ids if problem_id in test],
        }

    # ---- candidates --------------------------------------------------------------------------------------------

    @cached_property
    def passes(self) -> PassRequests:
        return PassRequests(recipe=self.recipe, task=task_of(self.recipe.task))

    def requests(self, problems: Iterable[Problem]) -> list[GenerationRequest]:
        """Every request of the first pass: samples of each generator, and its greedy one."""
        greedy = self.recipe.generation.greedy
        return [request for problem in problems for request in self.passes.first(problem, greedy=greedy)]

    def make_candidates(self) -> None:
        self.make_problems()
        self._stage("candidates", self._make_candidates)

    def check_keys(self, *, judges: bool = True) -> None:
        """Needs no Ray, so that a missing key is told before a cluster is started.

        Args:
            judges: whether the recipe's judges will be asked too.

        Raises:
            MissingKeyError: something is still to be drawn or rated, and an endpoint's key is not in the environment.
        """
        are_drawn = current_manifest("candidates", self.recipe, self.run) is not None
        if not are_drawn:
            greedy = self.recipe.generation.greedy
            check_keys([config for config in self.passes.asked if greedy or config.num_samples != 0])
        if judges:
            check_judges(self.recipe, self.run, basis=self.basis("pairs") if are_drawn else None)

    def forget_failed(self) -> None:
        """Have failed requests sent again, for candidates and for ratings of judges; what was answered is kept."""
        facts = (self.run.manifest("candidates") or {}).get("facts", {})
        if facts.get("num_failed"):
            self.run.remove("candidates", "manifest.json")
        if forget_ratings(self.recipe, self.run):
            self.run.remove("evaluation", "manifest.json")

    def _make_candidates(self) -> dict[str, Any]:
        problems, bar = self.problems(), self.progress("candidates")
        requests = self.requests(problems.values())
        for remark in self.passes.remarks_on_waves:
            _LOG.warning("%s", remark)
        if self.passes.waves is None:
            summary = generate(requests, recipe=self.recipe, run=self.run, problems=problems.values(), on_progress=bar)
        else:
            summary = generate_in_waves(requests, recipe=self.recipe, run=self.run, problems=problems, on_progress=bar)
        return summary.facts()

    def candidates(self, stage: str = "candidates") -> list[Candidate]:
        return [candidate_of(row) for row in self.run.read_table(CANDIDATES, stage, "candidates.parquet")]

    def saved_samples(self) -> SavedSamples | None:
        """What sampling in waves did not send; None where the first pass was sampled at once."""
        saved = (self.run.manifest("candidates") or {}).get("facts", {}).get("saved")
        return None if saved is None else SavedSamples(**saved)

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
                [candidate for candidate in self._as_scored() if candidate.problem_id in wanted],
                [found for found in labels if found.problem_id in wanted],
                config=with_defaults(self.recipe.pairs, task_of(self.recipe.task).defaults),
                seed=self.recipe.training_seed,
            )
            self.run.write_table(map(pair_row, pairs), PAIRS, "pairs", f"{split}.parquet")
            paired = {pair.problem_id for pair in pairs}
            facts[split] = {"pairs": len(pairs), "problems": len(paired), "of": len(wanted)}
        return facts

    # ---- the scorer --------------------------------------------------------------------------------------------

    def train(self) -> None:
        """Train the five adapters; makes candidates, labels and pairs first where they are missing.

        Raises:
            ConfigError: the run directory is that of a repair, whose scorer is not trained but refitted, and its scorer
                is not there or was made with other settings.
        """
        self.make_pairs()
        if self.run.exists(REPAIRED) and current_manifest("scorer", self.recipe, self.run) is None:
            raise ConfigError(
                f"{self.run.root} is the directory of a repair, and its scorer is missing or belongs to other "
                "settings, files or versions than it is asked for; run `raydebm repair` on the original run again"
            )
        self._stage("scorer", self._train)

    def _train(self) -> dict[str, Any]:
        problems, candidates = self.problems(), self._as_scored()
        groups = {
            split: training_groups(
                [pair_of(row) for row in self.run.read_table(PAIRS, "pairs", f"{split}.parquet")],
                candidates,
                problems.values(),
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

    @property
    def is_repaired(self) -> bool:
        """Whether the run's scorer is another run's, its heads refitted by ``raydebm repair``."""
        return self.run.exists(REPAIRED)

    def _as_scored(self) -> list[Candidate]:
        return [candidate.as_scored(self.recipe.scorer.reasoning) for candidate in self.candidates()]

    def make_energies(self) -> None:
        """Energies of all validation and test candidates, and of the training candidates that are learned from out of
        bag."""
        self.train()
        self._stage("energies", lambda: self._score(self.pool_candidates(), "energies", adapters_out_of_bag(self)))

    def pool_candidates(self) -> list[Candidate]:
        wanted = {*self.splits()[VALIDATION], *self.splits()[TEST], *adapters_out_of_bag(self)}
        return [found for found in self.candidates() if found.problem_id in wanted and not found.is_greedy]

    def _score(
        self, candidates: Sequence[Candidate], stage: str, members: Mapping[str, Sequence[bool]] | None = None
    ) -> dict[str, Any]:
        if not self.run.exists("scorer", "ensemble.json"):
            raise CheckpointError(f"{self.run.uri('scorer')} holds no ensemble; run `raydebm train` first")
        summary = score(
            self.problems(),
            candidates,
            checkpoint=self.run.uri("scorer"),
            recipe=self.recipe,
            run=self.run,
            stage=stage,
            members=members,
            on_progress=self.progress(stage),
        )
        return summary.facts()

    # ---- triage ------------------------------------------------------------------------------------------------

    def default_policy(self) -> Policy:
        """The recipe's own policy, before calibration. Recorded pools have no generator that could answer feedback."""
        policy = policy_of(self.recipe.triage, task_of(self.recipe.task).defaults, self.recipe.generators)
        return policy if self.passes.regenerator.kind != "recorded" else policy.replaced(max_passes=1)

    def recorded(self, split: str) -> RecordedPools:
        """All recorded candidates of a split, of all passes, with labels, checks and energies."""
        pools = RecordedPools()
        wanted = frozenset(self.splits()[split])
        pools.add(self.run, wanted, candidates="candidates", labels="labels", energies="energies")
        for stage in self.later_passes(split):
            pools.add(self.run, wanted, candidates=stage, labels=stage, energies=stage)
        add_evidence(self, split, pools)
        return pools

    def later_passes(self, split: str) -> list[str]:
        """Complete stages of later passes. They answer to one ensemble's picks, so another one's are not counted."""
        basis, found = self.basis("energies"), list[str]()
        while True:
            stage = f"regenerated/{split}-{len(found) + 1}"
            manifest = self.run.manifest(stage)
            if manifest is None or manifest.get("fingerprint") != basis:
                return found
            found.append(stage)

    def _draw_later_pass(self, split: str, requests: Sequence[GenerationRequest]) -> None:
        """Draw, label, check and score what a replay did not find."""
        stage = f"regenerated/{split}-{len(self.later_passes(split)) + 1}"
        self.run.remove(stage, "manifest.json")
        bar = self.progress(f"pass 2 ({split})")
        account = None if self.payer is None else Account(self.payer, SHARED_PASSES)
        generate(requests, recipe=self.recipe, run=self.run, stage=stage, on_progress=bar, account=account)
        self._label(stage, stage)
        self._score(self.candidates(stage), stage)
        score_pass(self, stage)
        self.run.finish(stage, {"fingerprint": self.basis("energies"), "requests": len(requests)})

    def make_policy(self) -> None:
        """Choose lambda and the thresholds on sigma on the validation split; then fit the posterior, and choose profile
        and thresholds on its probabilities."""
        self.make_energies()
        score_evidence(self)
        self._stage("calibration", self._make_policy)

    def _make_policy(self) -> dict[str, Any]:
        default = self.default_policy()
        self.run.remove("calibration", "grid.json")
        self.run.remove("calibration", "decision.json")
        if not self.recipe.calibration.enabled:
            policy, facts = default, dict[str, Any](enabled=False)
        else:
            policy, facts = calibrate_thresholds(self, default)
        if self.recipe.triage.rule == "posterior":
            policy, decided = fit_run_policy(self, policy)
            facts = {**facts, "decision": decided}
        self.run.write_json(policy.to_json(), "calibration", "policy.json")
        return facts

    def policy(self) -> Policy:
        return Policy.from_json(self.run.read_json("calibration", "policy.json"))

    def decision_fit(self) -> dict[str, Any] | None:
        """How the posterior was fitted; None where the policy has none."""
        if not self.run.exists("calibration", "decision.json"):
            return None
        found: dict[str, Any] = self.run.read_json("calibration", "decision.json")
        return found

    def outcomes(self, split: str = TEST) -> list[Outcome]:
        """The loop's outcome for every problem of a split, under the policy that is evaluated."""
        return self.complete(split, [self.evaluated_policy()])[0]

    def evaluated_policy(self) -> Policy:
        """The calibrated one; of one pass where the evaluation is to draw no further ones."""
        policy = self.policy()
        return policy if self.recipe.evaluation.two_pass else policy.replaced(max_passes=1)

    def complete(self, split: str, policies: Sequence[Policy | Callable[[Problem], Policy]]) -> list[list[Outcome]]:
        """Run the loop over what is recorded, draw in bulk what it lacked, and run it again until it lacks nothing."""
        problems = self.problems()
        asked = [problems[problem_id] for problem_id in self.splits()[split]]
        while True:
            pools = self.recorded(split)
            source = ReplaySource(pools.candidates, requests_of=self.passes.later)
            checker, scorer = RecordedChecker(pools.reports), RecordedScorer(pools.energies)
            baselines = RecordedScores(pools.scores) if self.recipe.evidence else None
            outcomes = [
                replay(
                    asked,
                    task=self.passes.task,
                    policy=policy,
                    source=source,
                    checker=checker,
                    scorer=scorer,
                    baselines=baselines,
                )
                for policy in policies
            ]
            if not source.missing:
                return outcomes
            self._draw_later_pass(split, source.missing)

    # ---- evaluation --------------------------------------------------------------------------------------------

    def evaluate(self) -> Evaluation:
        """Compare all selectors, also the recipe's baselines, on the test split, and write the report."""
        self.make_policy()
        score_run(self, self.recipe.baselines)
        self._stage("evaluation", self._evaluate)
        return Evaluation.from_json(self.run.read_json("evaluation", "metrics.json"))

    def _evaluate(self) -> dict[str, Any]:
        from raydebm.evaluation.report import write_report  # draws, and no other stage needs that

        policy, outcomes = self.evaluated_policy(), self.outcomes()
        pools = self.recorded(TEST)
        result = evaluate(
            self.evaluated_pools(TEST),
            validation=self.evaluated_pools(VALIDATION),
            policy=policy,
            adapters=[adapter.name for adapter in self.recipe.scorer.adapters],
            outcomes=outcomes,
            labels=pools.labels,
            fit=self.decision_fit(),
            config=self.evaluation_config(),
            seed=self.recipe.seed,
            positive_frac=self.recipe.pairs.positive_frac,
            title=self.recipe.name,
            task=self.recipe.task.name,
            command=self.command,
        )
        result = replace(result, saved=self.saved_samples())
        write_report(result, self.run, "evaluation", training=self.training_curves())
        return result.facts()

    def evaluation_config(self) -> EvaluationConfig:
        """The recipe's, with the prices of judges as they were billed where the recipe has none."""
        config = self.recipe.evaluation
        known = judge_prices(self.recipe, self.run) | config.prices.usd_per_score
        prices = config.prices.model_copy(update={"usd_per_score": known})
        return config.model_copy(update={"prices": prices})

    def training_curves(self) -> dict[str, Any]:
        """Contents of training.json by adapter."""
        return {
            adapter.name: self.run.read_json("scorer", adapter.name, "training.json")
            for adapter in self.recipe.scorer.adapters
        }

    def evaluated_pools(self, split: str) -> list[EvaluatedPool]:
        """The scored pools of a split, with the scores of the recipe's baselines where they have been made."""
        problems, pools = self.problems(), self.recorded(split)
        return assemble_pools(
            [problems[problem_id] for problem_id in self.splits()[split]],
            candidates=pools.candidates.values(),
            reports=pools.reports,
            energies=pools.energies,
            labels=pools.labels,
            scores=scores_of(self.recipe, self.run),
            evidence=pools.scores,
            shuffle_seed=self.recipe.evaluation.shuffle_seed,
        )
