"""Choosing among given answers in this process, with a finished run: no Ray, no HTTP, no sampling.

    from raydebm import best_of
    choice = best_of(problem, candidates, run="demo")
    print(choice.text if choice.text is not None else choice.reason)

The decision equals the service's for the same candidates when no further pass is left.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from raydebm.config import TaskConfig
from raydebm.decision.fields import to_review
from raydebm.decision.policy import Policy
from raydebm.decision.policy_file import read_policy
from raydebm.decision.reporter import DEADLINE_S, Reporter
from raydebm.decision.rules import PoolDecision, decide_pool, fields_of
from raydebm.decision.sampling.checks import check_candidate
from raydebm.errors import CheckpointError, ConfigError, RaydebmError, ScoringError, TaskDataError
from raydebm.generators.replies import split_reasoning
from raydebm.identity import content_id
from raydebm.records import (
    Candidate,
    ConstraintReport,
    Decision,
    Energies,
    FieldBelief,
    Problem,
    Reasoning,
    ScoredCandidate,
    well_formed,
)
from raydebm.run.addresses import local_copy, run_address
from raydebm.run.directory import RunDir
from raydebm.run.ensemble_file import holds_ensemble, read_ensemble_file, reasoning_of
from raydebm.scorer.texts import TextScorer, scores_or_errors
from raydebm.tasks import task_of
from raydebm.tasks.base import Task

if TYPE_CHECKING:
    from raydebm.evaluation.baselines.evidence import EvidenceScorers

Given = str | tuple[str, str] | Candidate
"""A candidate: its text, (text, author), or a record. The author is the name of its generator in the run's recipe,
whose skill the run has estimated. Texts without an author are attributed to one unknown author."""

UNKNOWN_AUTHOR = "client"
GIVEN = "the candidates were given, not sampled as those of the calibration problems were"
"""Reason why a choice has no guarantee."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One distinct answer among the candidates."""

    answer: str
    """The answer in the task's canonical text."""
    text: str
    """Text of the answer's best candidate."""
    probability: float
    """Probability that the answer is right; for labels that are violation scores, 1 minus the expected violation."""
    contributions: Mapping[str, float]
    """Contribution of each term of evidence to the log-odds; empty if the answer is proven right or wrong."""
    candidates: tuple[int, ...]
    """Indices of the candidates with this answer, in input order."""
    proof: bool | None
    """True or False if an exact constraint proves it right or wrong, else None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Decision on the candidates of one problem."""

    decision: Decision
    """ACCEPT or ABSTAIN."""
    answer: str | None
    """The selected answer in the task's canonical text; None after an abstention."""
    text: str | None
    """The selected candidate's text; None after an abstention."""
    selected: int | None
    """Index of the selected candidate, also after an abstention. None if nothing could be selected."""
    confidence: float | None
    """Probability that the selected answer is right; None without a fitted posterior or a selection."""
    reason: str
    """Reason for the decision, in one sentence."""
    answers: tuple[Answer, ...]
    """The selected answer first, the others by probability. Empty without a fitted posterior, and under the paper's
    rule also without a selection."""
    fields: tuple[FieldBelief, ...]
    """Every field of the candidates' answers with the selected answer's value, also after an abstention. Empty if the
    selected answer has no fields."""
    review: tuple[str, ...]
    """Paths of the fields whose confidence is below the policy's ``tau_field``."""
    guarantee: Mapping[str, Any] | None
    """Calibration's guarantee for answers of the run's own generators; never ``certified`` here, because it is unknown
    how the candidates were sampled. None if the run has no guarantee."""
    field_guarantee: Mapping[str, Any] | None
    """The same for the fields that are not in ``review``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chooser:
    """A run's task, policy and scorer, in memory."""

    task: Task
    policy: Policy
    scorer: TextScorer | None
    """The trained ensemble. Without it, candidates have no energies."""
    reasoning: Reasoning = "answer"
    """The part of a reasoning model's output that the scorer reads."""
    baselines: "EvidenceScorers | None" = None
    """Baselines whose scores are evidence, if the recipe has any."""
    reporter: Reporter | None = None
    """Runs the checks in child processes. Without it, they run in this process, without a time limit."""
    task_config: TaskConfig | None = None
    """The recipe's task section, for the child processes. Without it, they look the task up by its name."""

    @classmethod
    def load(
        cls,
        run: str,
        *,
        energies: bool = True,
        policy: str | None = None,
        device: str = "auto",
        dtype: str = "auto",
        check_timeout_s: float | None = DEADLINE_S,
    ) -> "Chooser":
        """Read a run directory once, for any number of problems.

        Args:
            run: a local path or a filesystem URL; ``demo`` for the finished run in this package.
            energies: load the scorer and baselines, which need torch. Without them the other evidence decides.
            policy: ``recipe`` for the recipe's own thresholds, or a policy file. Default: the run's calibrated policy.
            device: device of the scorer: ``auto``, ``cpu`` or ``cuda``.
            dtype: dtype of the encoder: ``float32``, ``bfloat16``, ``float16``, or ``auto`` for that of the run's
                energies.
            check_timeout_s: time limit of one candidate's checks in seconds, in child processes. A candidate that
                exceeds it fails without affecting the others. With None, checks run in this process, without a limit.

        Raises:
            ConfigError: the recipe or the policy is missing or wrong, or the policy needs energies.
            CheckpointError: the scorer is missing or cannot be loaded.
        """
        folder = RunDir(run_address(str(run)))
        recipe = folder.recipe()
        task = task_of(recipe.task)
        policy_in_force = read_policy(folder, recipe, task, policy)
        if not energies and policy_in_force.rule == "paper":
            raise ConfigError(
                "the policy's rule is paper, which selects by energies; calibrate with decision.rule: posterior, or "
                "leave energies=False out"
            )
        scorer = _load_scorer(folder, device=device, dtype=dtype) if energies else None
        reasoning = reasoning_of(read_ensemble_file(folder.uri("scorer"))) if energies else "answer"
        baselines = None
        if energies and recipe.evidence:
            from raydebm.evaluation.baselines.evidence import EvidenceScorers

            baselines = EvidenceScorers.load(recipe.evidence, folder)
        reporter = None if check_timeout_s is None else Reporter(deadline_s=check_timeout_s)
        return cls(
            task=task,
            policy=policy_in_force,
            scorer=scorer,
            reasoning=reasoning,
            baselines=baselines,
            reporter=reporter,
            task_config=recipe.task,
        )

    def close(self) -> None:
        """End the child processes of the checks. The chooser cannot be used afterwards."""
        if self.reporter is not None:
            self.reporter.close()

    def best_of(self, problem: str | Problem, candidates: Sequence[Given], *, kind: str = "") -> Choice:
        """Check, score and decide. See ``raydebm.best_of``."""
        asked = self._problem(problem)
        asked = replace(asked, kind=kind or asked.kind)
        written = _candidates(candidates, task=self.task, problem=asked)
        reports, energies = self._reports(asked, written), self._energies(asked, written)
        pool = [
            ScoredCandidate(candidate=candidate, report=report, energies=energy, scores=own, kind=asked.kind)
            for candidate, report, energy, own in zip(
                written, reports, energies, self._scores(asked, written), strict=True
            )
        ]
        return _choice(decide_pool(pool, passes_left=0, policy=self.policy), pool, self.policy)

    def _problem(self, problem: str | Problem) -> Problem:
        if isinstance(problem, Problem):
            if problem.task != self.task.name:
                raise ConfigError(f"the problem belongs to task {problem.task!r}; the run has task {self.task.name!r}")
            return problem
        try:
            return self.task.problem_from_text(well_formed(problem))
        except RaydebmError:
            raise
        except Exception as error:
            message = f"the text is not a problem of task {self.task.name!r}: {error!r}; give one in its format"
            raise TaskDataError(message) from error

    def _reports(self, problem: Problem, candidates: Sequence[Candidate]) -> list[ConstraintReport]:
        if self.reporter is not None:
            return self.reporter.reports(problem, candidates, self.task_config)
        return [check_candidate(self.task, problem, candidate) for candidate in candidates]

    def _scores(self, problem: Problem, candidates: Sequence[Candidate]) -> list[Mapping[str, float]]:
        if self.baselines is None:
            return [{} for _ in candidates]
        texts = list(dict.fromkeys(candidate.text for candidate in candidates if candidate.text is not None))
        known = dict(zip(texts, self.baselines.scores([(problem.prompt, text) for text in texts]), strict=True))
        return [{} if candidate.text is None else known[candidate.text] for candidate in candidates]

    def _energies(self, problem: Problem, candidates: Sequence[Candidate]) -> list[Energies | None]:
        """Energies by candidate. Equal texts are scored once, so that they have equal energies."""
        if self.scorer is None:
            return [None] * len(candidates)
        candidates = [candidate.as_scored(self.reasoning) for candidate in candidates]
        texts = list(dict.fromkeys(candidate.text for candidate in candidates if candidate.text is not None))
        scores = scores_or_errors(self.scorer, [(problem.prompt, text) for text in texts])
        known = dict(zip(texts, scores, strict=True))
        return [
            None if candidate.text is None else _energies_of(candidate, known[candidate.text])
            for candidate in candidates
        ]


def best_of(
    problem: str | Problem,
    candidates: Sequence[Given],
    *,
    run: str,
    kind: str = "",
    energies: bool = True,
    check_timeout_s: float | None = DEADLINE_S,
) -> Choice:
    """Choose the best of several answers to a problem, or abstain.

    Args:
        problem: its text as users write it, or a record.
        candidates: texts, (text, author) pairs, or records; see ``Given``.
        run: directory of a finished run, or ``demo`` for the one in this package. The last four are cached per
            process; ``Chooser.load`` reads a run again.
        kind: kind of question, as in the run's problems; authors' skills differ by kind. Default: the problem's own.
        energies: use the scorer and the baselines that are evidence, which need torch.
        check_timeout_s: time limit of one candidate's checks in seconds; see ``Chooser.load``.

    Raises:
        ConfigError: there are no candidates or one is invalid, or the run is missing or incomplete.
        TaskDataError: the text is not a problem of the run's task.
        CheckpointError: the scorer cannot be loaded.
    """
    return _loaded(str(run), energies, check_timeout_s).best_of(problem, candidates, kind=kind)


@lru_cache(maxsize=4)
def _loaded(run: str, energies: bool, check_timeout_s: float | None) -> Chooser:
    return Chooser.load(run, energies=energies, check_timeout_s=check_timeout_s)


def _load_scorer(run: RunDir, *, device: str, dtype: str) -> TextScorer:
    remedy, address = "pass energies=False to decide without energies", run.uri("scorer")
    try:
        from raydebm.scorer.ensemble import EnsembleScorer
    except ImportError as error:
        raise CheckpointError(f"the scorer cannot be loaded ({error}); {remedy}") from error
    if not holds_ensemble(address):
        raise CheckpointError(f"{address} does not contain a trained ensemble; run `raydebm run`, or {remedy}")
    with local_copy(address) as folder:
        return EnsembleScorer.load(folder, device=device, dtype=run.scoring_type(dtype))


def _candidates(given: Sequence[Given], *, task: Task, problem: Problem) -> list[Candidate]:
    if isinstance(given, str) or not given:
        raise ConfigError("best_of needs a list of candidates, with at least one entry")
    return [_candidate(entry, index, task=task, problem=problem) for index, entry in enumerate(given)]


def _candidate(entry: Given, index: int, *, task: Task, problem: Problem) -> Candidate:
    if isinstance(entry, Candidate):
        return entry
    text, author = (entry, UNKNOWN_AUTHOR) if isinstance(entry, str) else _pair(entry, index)
    answer, thinking = split_reasoning(well_formed(text))
    return Candidate(
        candidate_id=content_id("given", problem.problem_id, index, well_formed(text)),
        task=task.name,
        problem_id=problem.problem_id,
        generator=author,
        text=answer,
        reasoning=thinking,
        sample_index=index,
    )


def _pair(entry: Any, index: int) -> tuple[str, str]:
    is_pair = isinstance(entry, tuple) and len(entry) == 2 and all(isinstance(part, str) for part in entry)
    if not is_pair:
        raise ConfigError(f"candidate {index} must be a text, a (text, author) pair or a Candidate, got {entry!r:.80}")
    return entry[0], entry[1]


def _energies_of(candidate: Candidate, scored: Any) -> Energies | None:
    if isinstance(scored, ScoringError):
        return None
    return Energies(
        candidate_id=candidate.candidate_id,
        members=scored.members,
        num_tokens=scored.num_tokens,
        num_truncated=scored.num_truncated,
    )


def _choice(decided: PoolDecision, pool: Sequence[ScoredCandidate], policy: Policy) -> Choice:
    best, fields, void = decided.best, fields_of(pool, decided, policy), policy.without_guarantee(GIVEN)
    accepted = best if decided.decision is Decision.ACCEPT else None
    return Choice(
        decision=decided.decision,
        answer=None if accepted is None else accepted.report.answer,
        text=None if accepted is None else accepted.candidate.text,
        selected=next((place for place, scored in enumerate(pool) if scored is best), None),
        confidence=decided.confidence,
        reason=decided.reason,
        answers=tuple(
            Answer(
                answer=belief.best.report.answer or "",
                text=belief.best.candidate.text or "",
                probability=belief.probability,
                contributions=belief.contributions,
                candidates=belief.cluster.rows,
                proof=belief.cluster.proof,
            )
            for belief in decided.beliefs
        ),
        fields=fields,
        review=to_review(fields, policy.tau_field),
        guarantee=void.guarantee,
        field_guarantee=void.field_guarantee,
    )
