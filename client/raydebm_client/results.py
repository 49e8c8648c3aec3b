"""What the service answers, as frozen records with a table for notebooks. Energies: lower is better.

Fields that a newer service adds are ignored here and stand in ``raw``; null in JSON is None here.
"""

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, TypeVar

from raydebm_client.errors import ServiceError

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateResult:
    """One candidate as it stood when the decision was made."""

    candidate_id: str
    generator: str
    text: str | None
    answer: str | None = None
    """The parsed answer in canonical text; None: it has none."""
    energy: float | None = None
    """mu + lambda * penalty; None: infinite."""
    mu: float | None = None
    sigma: float | None = None
    """Population standard deviation over the adapters."""
    members: list[float] | None = None
    penalty: float | None = None
    """E_constraint; None: infinite, because nothing could be parsed."""
    violations: list[dict[str, Any]] = field(default_factory=list)
    """Each with constraint, penalty, weight, message."""
    pass_index: int = 1
    sample_index: int = 0
    error: str | None = None
    finish_reason: str | None = None
    """``length``: the text was cut."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TriageResult:
    """One decision."""

    decision: str
    """``accept`` or ``abstain``. Abstaining is an answer, not an error."""
    reason: str
    request_id: str
    task: str
    problem_id: str
    answer: str | None
    """The accepted answer in the task's canonical text; None after an abstention."""
    confidence: float | None = None
    """Probability that the selected answer is right; None without a fitted posterior or a selection."""
    answers: list[dict[str, Any]] = field(default_factory=list)
    """Distinct answers, the selected one first, each with answer, probability, evidence, proof, num_candidates, authors
    and candidate_ids; empty without a posterior."""
    guarantee: dict[str, Any] | None = None
    """max_error, confidence, certified, problems, suspended, reason; None: nothing was promised."""
    record_id: str | None = None
    """Id of the stored decision, for ``report_outcome``; None where the service stores no decisions."""
    text: str | None = None
    """The accepted candidate's whole text; None after an abstention."""
    energy: float | None = None
    mu: float | None = None
    sigma: float | None = None
    members: list[float] | None = None
    penalty: float | None = None
    violations: list[dict[str, Any]] = field(default_factory=list)
    num_passes: int = 1
    passes: list[dict[str, Any]] = field(default_factory=list)
    feedback: list[str] = field(default_factory=list)
    """What each later pass was told."""
    generators: list[dict[str, Any]] = field(default_factory=list)
    usage: dict[str, int] = field(default_factory=dict)
    cost_usd: float | None = None
    cancelled_usd: float | None = None
    """What cancelled requests may have cost at most, beyond ``cost_usd``."""
    """candidates, oldest_s, tokens_saved and usd_saved of the candidates that an earlier equal request paid for; None:
    all were sampled for this one."""
    stop_reason: str | None = None
    """``accept``, ``abstain``, ``cost`` or ``budget``: why sampling in waves ended; None: it was not in waves."""
    stop_words: str | None = None
    num_planned: int | None = None
    """Samples of all passes, had none ended early."""
    num_samples: int | None = None
    """Samples that were drawn."""
    num_cancelled: int | None = None
    """Requests that were cancelled in flight."""
    tokens_saved: int | None = None
    """By samples that were never asked for."""
    saved_frac: float | None = None
    """Share of the planned samples that were never asked for."""
    latency_ms: float | None = None
    policy: dict[str, Any] = field(default_factory=dict)
    seed: int | None = None
    versions: dict[str, str] = field(default_factory=dict)
    candidate: CandidateResult | None = None
    """The energy minimiser, also after an abstention. A stream has it only with ``return_candidates``."""
    candidates: list[CandidateResult] | None = None
    """All of them, when ``return_candidates`` was set."""
    choices: list[dict[str, Any]] | None = None
    """With ``n``: the best distinct answers, the selected one first, also after an abstention. A stream has none."""
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def accepted(self) -> bool:
        return self.decision == "accept"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredText:
    """One text of a score request."""

    index: int
    score: float | None
    """-energy: higher is better. None: it has no answer, or no finite energy."""
    confidence: float | None = None
    """Probability that its answer is right, among the texts of the request; None without a task or a posterior."""
    energy: float | None = None
    mu: float | None = None
    sigma: float | None = None
    members: list[float] | None = None
    answer: str | None = None
    penalty: float | None = None
    violations: list[dict[str, Any]] | None = None
    """None where no task was known, so that nothing was checked."""
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreResult:
    """In the order of the texts that were sent."""

    data: list[ScoredText]
    model: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedDocument:
    """One document of a rerank request."""

    index: int
    """Place of the document in the request."""
    relevance_score: float
    """Higher is better; unbounded, no probability."""
    confidence: float | None = None
    """Probability that its answer is right, among the documents; None without a task or a posterior."""
    energy: float | None = None
    mu: float | None = None
    sigma: float | None = None
    members: list[float] | None = None
    answer: str | None = None
    penalty: float | None = None
    document: dict[str, Any] | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RerankResult:
    """Best first."""

    results: list[RankedDocument]
    task: str | None = None
    """Whose constraints counted; None: none."""
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeResult:
    """What is stored about a decision after a report."""

    record_id: str
    status: str
    """``created``, ``replaced`` (another report by the same name) or ``unchanged`` (this very report was stored)."""
    outcome: str
    """``right`` or ``wrong``: the report that arrived last."""
    disputed: bool = False
    """Whether the current reports of several people differ."""
    reports: int = 1
    """Reports about the decision, replaced ones included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Something that happened while an answer is made."""

    event: str
    """``start``, ``pass``, ``candidate``, ``scored``, ``wave`` or ``decision`` (docs/service.md, Progress)."""
    facts: Mapping[str, Any] = field(default_factory=dict)


def triage_result(body: Mapping[str, Any]) -> TriageResult:
    """Read a body of ``/v1/triage``. Raises ServiceError when it has another form."""
    changes: dict[str, Any] = {"raw": body}
    if body.get("candidate") is not None:
        changes["candidate"] = record(CandidateResult, body["candidate"])
    if body.get("candidates") is not None:
        changes["candidates"] = [record(CandidateResult, candidate) for candidate in body["candidates"]]
    return record(TriageResult, body, **changes)


def score_result(body: Mapping[str, Any]) -> ScoreResult:
    data = [record(ScoredText, entry) for entry in record_list(body, "data")]
    return record(ScoreResult, body, data=data, raw=body)


def rerank_result(body: Mapping[str, Any]) -> RerankResult:
    results = [record(RankedDocument, entry) for entry in record_list(body, "results")]
    return record(RerankResult, body, results=results, raw=body)


def outcome_result(body: Mapping[str, Any]) -> OutcomeResult:
    return record(OutcomeResult, body)


def rewards(body: Mapping[str, Any]) -> list[float]:
    return [float(reward) for reward in record_list(body, "rewards")]


def record_list(body: Mapping[str, Any], name: str) -> list[Any]:
    """The list of that name. Raises ServiceError where the body has no such list."""
    entries = body.get(name)
    if not isinstance(entries, list):
        raise _unexpected(f"no list {name!r}")
    return entries


def record(kind: type[T], body: Any, **changes: Any) -> T:
    """A record from the fields of a JSON object that it knows. Raises ServiceError when one is missing."""
    if not isinstance(body, Mapping):
        raise _unexpected(f"{type(body).__name__} for {kind.__name__}")
    values = {**body, **changes}
    known: Any = fields(kind)  # type: ignore[arg-type]
    required = (f for f in known if f.default is MISSING and f.default_factory is MISSING)
    missing = [f.name for f in required if f.name not in values]
    if missing:
        raise _unexpected(f"{kind.__name__} without {', '.join(missing)}")
    return kind(**{f.name: values[f.name] for f in known if f.name in values})


def _unexpected(what: str) -> ServiceError:
    return ServiceError(
        f"the service answered something else than expected ({what}); check base_url and the service's version",
        502,
        "unexpected_answer",
    )
