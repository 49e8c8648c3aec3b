"""Bodies of requests and answers, and their conversion from and to the service's own records.

Unknown fields are refused in raydebm's own request bodies. They are tolerated in OpenAI's, whose clients send many
fields that have no effect here. In answers an infinite energy or penalty becomes null, because JSON has no infinity.
Energies: lower is better.
"""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from raydebm.decision.evidence.posterior import Belief
from raydebm.decision.fields import to_review
from raydebm.errors import ServiceError
from raydebm.records import FieldBelief, PassRecord, ScoredCandidate, Violation
from raydebm.service.core import (
    NO_ANSWER,
    NO_ENERGY,
    ROLES,
    Conversation,
    GeneratorUse,
    ProblemBody,
    TriageResult,
    finite_or_none,
    stop_totals,
)
from raydebm.service.logs import redact
from raydebm.service.settings import SEED_LIMIT, Bundle, ChatOverrides, Data, Overrides, Text, writable
from raydebm.service.spending import CeilingStatus
from raydebm.service.store.record import DecisionFacts, DecisionRecord

_OF_ENERGIES = ("mu", "sigma", "members", "num_tokens", "num_truncated")
"""Fields of a candidate's body that come from its energies; null without energies."""
MAX_ANSWERS = 16
"""Maximum number of distinct answers with evidence in a response."""

# ---- requests -------------------------------------------------------------------------------------------------------

_Stop = Annotated[Text, Field(min_length=1)]
TEXT_PARTS = ("text", "input_text", "output_text", "refusal")
"""Kinds of text parts, in a user's turns and in the model's earlier ones."""


GivenFields = BeforeValidator(
    lambda given: json.dumps(given, ensure_ascii=False) if isinstance(given, dict) and "prompt" not in given else given,
    json_schema_input_type=Text | ProblemBody | dict[str, Any],
)
"""Validator that turns an object without ``prompt``, with the fields of a task's problem, into JSON for the task."""


class ContentPart(BaseModel):
    model_config = ConfigDict(use_attribute_docstrings=True, extra="allow")

    type: Text
    text: Text | None = None
    refusal: Text | None = None
    """Words of an earlier refusal."""


class ChatMessage(BaseModel):
    """One turn. Content may be a text or a list of parts, of which only text can be read."""

    model_config = ConfigDict(use_attribute_docstrings=True, extra="allow")

    role: Text
    content: Text | list[ContentPart] | None = None


class TriageRequest(Overrides):
    task: Text | None = None
    """Default: the only served task."""
    problem: Annotated[Text | ProblemBody, GivenFields]
    """A text, an object with the fields of a declared task's problem, or an object with ``prompt``."""
    stream: bool = False
    """Server-sent events: progress while candidates arrive, then the full record."""


class StreamOptions(BaseModel):
    model_config = ConfigDict(use_attribute_docstrings=True, extra="ignore")

    include_usage: bool = False


class ResponseFormat(BaseModel):
    """Requested format of the content, in which the task's answer is written."""

    model_config = ConfigDict(use_attribute_docstrings=True, extra="allow")

    type: Literal["text", "json_object", "json_schema"]
    json_schema: Data | None = None

    @model_validator(mode="after")
    def _has_schema(self) -> "ResponseFormat":
        writable(self.model_extra)
        if self.type == "json_schema" and self.json_schema is None:
            name = type(self).model_fields["json_schema"].alias or "json_schema"
            raise ValueError(f"type 'json_schema' needs the field {name!r}")
        return self


class OpenAIBody(BaseModel):
    """Fields of chat and response requests. The routes refuse unsupported fields that would change the answer."""

    model_config = ConfigDict(use_attribute_docstrings=True, extra="allow")

    model: Text
    stream: bool | None = None
    temperature: float | None = Field(None, ge=0, le=2, allow_inf_nan=False)
    top_p: float | None = Field(None, gt=0, le=1, allow_inf_nan=False)
    raydebm: ChatOverrides | None = None


class ChatRequest(OpenAIBody):
    """OpenAI's body."""

    messages: list[ChatMessage] = Field(min_length=1)
    stream_options: StreamOptions | None = None
    max_tokens: int | None = Field(None, ge=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    seed: int | None = Field(None, ge=-SEED_LIMIT, lt=SEED_LIMIT)
    stop: _Stop | Annotated[list[_Stop], Field(max_length=16)] | None = None
    response_format: ResponseFormat | None = None

    def sampling(self) -> dict[str, Any]:
        """Changed sampling settings. Clients that send temperature 0 want deterministic answers. Here a seed makes them
        so, while candidates at temperature 0 would all be the same. So 0 keeps the recipe's temperature."""
        given = {
            "temperature": self.temperature or None,
            "top_p": self.top_p,
            "max_tokens": self.max_completion_tokens or self.max_tokens,
            "stop": None if self.stop is None else (self.stop,) if isinstance(self.stop, str) else tuple(self.stop),
        }
        return {name: value for name, value in given.items() if value is not None}


# ---- problems --------------------------------------------------------------------------------------------------------


def read_conversation(messages: Sequence[ChatMessage]) -> Conversation:
    """Read a chat. Raises ServiceError for a missing or empty user message, an unknown role, tool calls, or a part that
    is not text."""
    roles = [_role(message) for message in messages]
    asked = max((index for index, role in enumerate(roles) if role == "user"), default=None)
    if asked is None:
        message = "messages hold no message with role 'user'; its content is the problem"
        raise ServiceError(message, 400, "missing_text", "messages")
    problem = _text(messages[asked])
    if not problem.strip():
        message = "the last user message is empty; its content is the problem"
        raise ServiceError(message, 400, "missing_text", "messages")
    turns = ({"role": role, "content": _text(said)} for role, said in zip(roles, messages[:asked], strict=False))
    return Conversation(
        problem=problem,
        context=tuple(turn for turn in turns if turn["content"].strip()),
        num_ignored=len(messages) - 1 - asked,
    )


def _role(message: ChatMessage) -> str:
    if message.role not in ROLES:
        known = ", ".join(ROLES)
        reason = f"a message with role {message.role!r} cannot be used; known: {known}. Tool calls are not supported"
        raise ServiceError(reason, 400, "unsupported_content", "messages")
    extra = message.model_extra or {}
    if call := next((name for name in ("tool_calls", "function_call") if extra.get(name)), None):
        reason = f"a message with {call!r} cannot be read; only texts can, so leave the turns about tools out"
        raise ServiceError(reason, 400, "unsupported_content", "messages")
    return ROLES[message.role]


def _text(message: ChatMessage) -> str:
    if message.content is None or isinstance(message.content, str):
        return message.content or ""
    for part in message.content:
        if part.type not in TEXT_PARTS:
            reason = f"content part of type {part.type!r} cannot be read; only 'text' parts can"
            raise ServiceError(reason, 400, "unsupported_content", "messages")
    return "".join((part.refusal if part.type == "refusal" else part.text) or "" for part in message.content)


# ---- models and named policies ---------------------------------------------------------------------------------------

MODEL_PREFIX = "raydebm/"


def model_ids(bundle: Bundle) -> list[str]:
    """Every id of ``GET /v1/models``: the calibrated policy first, then the named ones."""
    names = [MODEL_PREFIX + name for name in bundle.tasks]
    return names + [f"{name}@{policy}" for policy in bundle.profiles for name in names]


def parse_model(bundle: Bundle, model: str) -> tuple[str, str | None]:
    """Task and named policy of a model id. Raises ServiceError 404 for an id that is not served."""
    if model not in model_ids(bundle):
        names = ", ".join(model_ids(bundle))
        raise ServiceError(f"model {model!r} is not served here; served: {names}", 404, "model_not_found", "model")
    task_name, _, policy = model.removeprefix(MODEL_PREFIX).partition("@")
    return task_name, policy or None


def model_body(bundle: Bundle, model: str) -> dict[str, Any]:
    """``GET /v1/models/{id}``. Raises ServiceError 404."""
    task_name, policy = parse_model(bundle, model)
    return {
        "id": model,
        "object": "model",
        "created": 0,
        "owned_by": "raydebm",
        "raydebm": {"tasks": [task_name], "policy": policy, "versions": dict(bundle.of(task_name).versions)},
    }


def merged_overrides(bundle: Bundle, body: Overrides | None, *, policy: str | None = None) -> ChatOverrides:
    """Settings of one request: its body, over the named policy of its model id, over the calibrated policy. Raises
    ServiceError 400 for contradictory values, 404 for an unknown policy."""
    fields = set(ChatOverrides.model_fields)
    # Typed clients send omitted fields as null, which must not lift the limits of a named policy.
    from_body = (
        {} if body is None else body.model_dump(by_alias=True, exclude_unset=True, exclude_none=True, include=fields)
    )
    name = from_body.get("policy") or policy
    settings: dict[str, Any] = {}
    if name is not None:
        if name not in bundle.profiles:
            known = ", ".join(bundle.profiles) or "none"
            raise ServiceError(f"policy {name!r} is not served here; served: {known}", 404, "unknown_policy", "policy")
        profile = bundle.profiles[name].model_dump(by_alias=True, exclude_none=True, exclude_unset=True)
        settings = {**profile, "policy": name}
    try:
        return ChatOverrides.model_validate({**settings, **from_body})
    except ValidationError as error:
        fault = error.errors(include_input=False)[0]
        field = str(fault["loc"][0]) if fault["loc"] else ""
        raise ServiceError(f"{field}: {fault['msg']}", 400, "bad_override", field or None) from error


# ---- answers --------------------------------------------------------------------------------------------------------


class ErrorDetail(BaseModel):
    message: str
    type: Literal["invalid_request_error", "rate_limit_error", "server_error"]
    code: str
    """Short, stable code for programs to test."""
    param: str | None
    """Name of the wrong field or header."""


class ErrorBody(BaseModel):
    """Error in OpenAI's format."""

    error: ErrorDetail


class Usage(BaseModel):
    """Token counts, summed over all candidates of all passes. Generators that report no usage count as 0."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    total_tokens: int = 0


class CandidateBody(BaseModel):
    """One candidate at the time of the decision."""

    candidate_id: str
    generator: str
    pass_index: int
    sample_index: int
    text: str | None
    error: str | None
    """Reason for a missing text, answer or energy."""
    answer: str | None
    """The parsed answer in canonical text."""
    energy: float | None
    """E = mu + lambda * E_constraint; null if the text did not parse or could not be scored (E = infinity)."""
    mu: float | None
    sigma: float | None
    """Population standard deviation over the adapters (ddof=0)."""
    members: list[float] | None
    """One energy per adapter."""
    penalty: float | None
    """E_constraint; null if the text did not parse."""
    violations: list[Violation]
    num_tokens: int | None
    num_truncated: int | None
    """Number of tokens of problem and answer that did not fit the scorer's context."""
    completion_tokens: int | None
    finish_reason: str | None
    """Reason why the generator stopped, if it reports one; ``length``: the text was cut at ``max_tokens``."""
    cost_usd: float | None


class StopFields(BaseModel):
    """End of sampling in waves, with its savings; all null if a pass is sampled at once."""

    stop_reason: Literal["accept", "abstain", "budget"] | None = None
    """accept: the answer is settled; abstain: no answer will become certain enough; budget: every
    sample that the pass, the deadline and the generators allowed was taken."""
    stop_words: str | None = None
    """The reason as a sentence with numbers."""
    num_planned: int | None = None
    """Number of samples planned for the pass."""
    num_samples: int | None = None
    """Number of samples taken, including failed ones."""
    num_cancelled: int | None = None
    """Number of requests cancelled in flight. They may have a cost, and do not count as saved."""
    tokens_saved: int | None = None
    """Number of samples never requested, times the mean tokens of those taken; null if no generator reports tokens."""
    saved_frac: float | None = None
    """Share of the planned samples that were never requested."""


class PassBody(StopFields):
    pass_index: int
    num_requested: int
    num_failed: int
    selected: str | None
    signal: float | None
    """The policy's ``signal``. The paper's rule compares it with ``theta_sigma`` and ``theta_abstain``."""
    penalty: float | None
    decision: str
    confidence: float | None = None
    """Probability that the selection is right."""
    feedback: str | None
    """Feedback that the next pass received."""


class AnswerBody(BaseModel):
    """One distinct answer of the pool, with the evidence for it."""

    answer: str | None
    """Answer in canonical text."""
    probability: float
    """Probability that it is right; 1 minus the expected violation if labels are violation scores."""
    evidence: dict[str, float]
    """Contribution of each term to the log-odds, relative to the average answer of the pool; ``base`` is the rest.
    Empty for an answer that an exact constraint proves or refutes."""
    proof: bool | None
    """True or false if an exact constraint proves it right or wrong, else null."""
    num_candidates: int
    authors: list[str]
    """Generators that gave this answer."""
    candidate_ids: list[str]


class DecisionDetails(StopFields):
    """The course of a decision, its evidence and its settings.

    Numbers about waves are summed over the passes; their reasons are those of the last pass."""

    passes: list[PassBody]
    answers: list[AnswerBody]
    """Up to 16 distinct answers, the selected one and the runner-up first; empty without a posterior or a selection."""
    fields: list[FieldBelief]
    """Fields of a structured answer, also after an abstention; empty for other answers."""
    review: list[str]
    """Paths of the fields whose confidence is below the policy's ``tau_field``."""
    field_guarantee: dict[str, Any] | None
    """Guarantee about the fields that are not in ``review``. Null if nothing was guaranteed."""
    guarantee: dict[str, Any] | None
    """Guarantee of the policy: the largest share of wrong answers ``max_error`` (or mean violation), the ``confidence``
    over calibration problems with which it holds, the number of ``problems`` behind it, and ``outcomes`` (which
    decisions, if reports certified it). ``certified`` is false if it does not hold for this decision, ``suspended``
    true while reported outcomes contradict it; ``reason`` says why. Null if nothing was guaranteed."""
    policy: dict[str, Any]
    seed: int
    versions: dict[str, str]
    stages_ms: dict[str, float]
    """Time per kind of call, summed over passes. Kinds overlap, because candidates are checked and scored while others
    are generated."""


class TriageResponse(DecisionFacts, DecisionDetails):
    """One decision with its reasons. Chat answers have it as ``raydebm``, without ``text`` and ``candidate``.

    ``answer`` is null after an abstention."""

    text: str | None
    """The returned text; null after an abstention."""
    candidate: CandidateBody | None
    """The selected candidate, also after an abstention; null if none could be selected."""
    members: list[float] | None
    """One energy per adapter."""
    constraints: dict[str, float]
    """Weighted penalty of each violated constraint; a constraint that holds is absent (0)."""
    violations: list[Violation]
    checks: list[str]
    """Constraints by which the selected answer was checked, satisfied or not."""
    feedback: list[str]
    generators: list[GeneratorUse]
    usage: Usage
    cancelled_usd: float | None
    """Maximum cost of cancelled requests in addition to ``cost_usd``, at the recipe's prices; null if none was
    cancelled or a price is unknown."""
    ceilings: list[CeilingStatus]
    """Remaining amounts of the day's ceilings, if the operator set any."""
    ignored_messages: int
    """Number of messages after the last user message, which are ignored. Earlier messages are context."""
    candidates: list[CandidateBody] | None = None

    @property
    def chat_object(self) -> dict[str, Any]:
        """The ``raydebm`` object of a chat answer: without ``text`` and ``candidate``."""
        unset = {"candidates"} if self.candidates is None else set()
        return self.model_dump(exclude={"text", "candidate"} | unset)


# ---- answers from records -------------------------------------------------------------------------------------------


def triage_answer(result: TriageResult) -> TriageResponse:
    """The full record of one decision, as ``/v1/triage`` answers it."""
    context, outcome, activity = result.context, result.outcome, result.activity
    best, lambda_ = outcome.best, context.policy.lambda_
    violations = () if best is None else best.report.violations
    constraints: defaultdict[str, float] = defaultdict(float)
    for violation in violations:
        constraints[violation.constraint] += violation.weight * violation.penalty
    is_checked = best is not None and best.report.parsed and best.report.error is None
    prompt, completion = (
        sum(getattr(candidate, name) or 0 for candidate in activity.received)
        for name in ("prompt_tokens", "completion_tokens")
    )
    return TriageResponse(
        **result.summary.model_dump(include=set(DecisionFacts.model_fields))
        | details_of(result.record, result.beliefs, result.suspended)
        | {
            "record_id": result.record.record_id if result.is_stored else None,
            "reason": result.reason,
            "answer": result.answer,
            "policy": context.policy.settings(),
        },
        text=outcome.answer,
        candidate=None if best is None else candidate_body(best, lambda_),
        members=None if best is None or best.energies is None else list(best.energies.members),
        constraints=constraints,
        violations=list(violations),
        checks=[constraint.name for constraint in context.task.constraints] if is_checked else [],
        feedback=[each.feedback for each in outcome.passes if each.feedback is not None],
        generators=result.generators,
        usage=Usage(prompt_tokens=prompt, completion_tokens=completion, total_tokens=prompt + completion),
        cancelled_usd=result.cancelled_usd,
        ceilings=activity.ceilings,
        ignored_messages=context.ignored_messages,
        candidates=[candidate_body(scored, lambda_) for scored in outcome.pool] if context.return_candidates else None,
    )


def details_of(record: DecisionRecord, beliefs: Sequence[Belief], suspended: str | None) -> dict[str, Any]:
    """Fields of ``DecisionDetails``, from beliefs about the distinct answers, the selected one first, and the reason
    why the policy's guarantee is suspended, if it is."""
    passes = record.outcome.passes
    return {
        "passes": [pass_body(each) for each in passes],
        **stop_totals([each.stop for each in passes]),
        "answers": [
            AnswerBody(
                answer=belief.best.report.answer,
                probability=belief.probability,
                evidence=dict(belief.contributions),
                proof=belief.cluster.proof,
                num_candidates=len(belief.candidates),
                authors=sorted({scored.candidate.generator for scored in belief.candidates}),
                candidate_ids=[scored.candidate.candidate_id for scored in belief.candidates],
            )
            for belief in beliefs[:MAX_ANSWERS]
        ],
        "fields": list(record.outcome.fields),
        "review": list(to_review(record.outcome.fields, record.policy.tau_field)),
        "field_guarantee": guarantee_body(record.policy.field_guarantee, None),
        "guarantee": guarantee_body(record.policy.guarantee, suspended),
        "seed": record.seed,
        "versions": dict(record.versions),
        "stages_ms": dict(record.stages_ms),
    }


def guarantee_body(guarantee: Mapping[str, Any] | None, suspended: str | None) -> dict[str, Any] | None:
    """A policy's guarantee for a response, with the reason for its suspension. None without a guarantee."""
    if guarantee is None:
        return None
    told = {name: guarantee[name] for name in ("max_error", "confidence", "certified", "problems")}
    reason = guarantee.get("reason") if suspended is None else suspended
    return {**told, "suspended": suspended is not None, "reason": reason, "outcomes": guarantee.get("outcomes")}


def pass_body(record: PassRecord) -> PassBody:
    """One pass of a decision."""
    names = PassBody.model_fields.keys() & PassRecord.__dataclass_fields__.keys()
    same = {name: getattr(record, name) for name in names}
    return PassBody(**same, signal=record.sigma, **stop_totals([record.stop]))


def candidate_body(scored: ScoredCandidate, lambda_: float) -> CandidateBody:
    """A candidate with its violations and energies."""
    candidate, report, error = scored.candidate, scored.report, None
    if candidate.error is not None:
        error = redact(candidate.error)
    elif report.error is not None or not report.parsed:
        error = report.error or NO_ANSWER
    elif scored.energies is None:
        error = NO_ENERGY
    return CandidateBody(
        candidate_id=candidate.candidate_id,
        generator=candidate.generator,
        pass_index=candidate.pass_index,
        sample_index=candidate.sample_index,
        text=candidate.text,
        error=error,
        answer=report.answer,
        energy=finite_or_none(scored.total_energy(lambda_)),
        **{name: getattr(scored.energies, name, None) for name in _OF_ENERGIES},
        penalty=finite_or_none(report.penalty),
        violations=list(report.violations),
        completion_tokens=candidate.completion_tokens,
        finish_reason=candidate.finish_reason,
        cost_usd=candidate.cost_usd,
    )
