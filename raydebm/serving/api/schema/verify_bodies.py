"""Bodies of ``POST /v1/verify``, after the outcome-verifier contract of the vLLM Semantic Router."""

from typing import Literal

from pydantic import Field, model_validator

from raydebm.serving.api.schema.candidate_bodies import Usage, ViolationBody
from raydebm.serving.api.schema.request_bodies import ChatMessage, ProblemBody
from raydebm.serving.api.schema.score_bodies import MAX_CANDIDATES_TO_SCORE
from raydebm.serving.core.verification import Disposition, ReasonCode
from raydebm.serving.settings.fields import Body, Text
from raydebm.serving.settings.overrides import MAX_DEADLINE_MS, PolicyChanges

Flag = Literal["selected", "tied", "proven", "refuted", "constraint_violated", "no_answer", "not_scored"]


class GivenCandidate(Body):
    text: Text
    id: Text | None = Field(None, min_length=1, max_length=200)
    """The caller's own name for it; left out: its place in the list, from 0."""
    author: Text | None = Field(None, min_length=1, max_length=200)
    """Who wrote it: the name of a generator of the recipe, whose skill is known. Counts with ``blind: false`` alone."""


class VerifyRequest(PolicyChanges):
    """Exactly one of ``problem`` and ``messages``, and the candidates."""

    task: Text | None = None
    """None: the first of the service's tasks that can read the problem."""
    problem: Text | ProblemBody | None = None
    messages: list[ChatMessage] | None = None
    """The last user message is the problem; what stands before it is context."""
    candidates: list[Text | GivenCandidate] = Field(max_length=MAX_CANDIDATES_TO_SCORE)
    blind: bool = True
    """Authors are neither evidence nor given back."""
    passes_left: int = Field(1, ge=0, le=1000)
    """How often the caller can still try again; with 0 nothing is ``redo``."""
    tie_margin: float = Field(0.01, ge=0, le=0.5, allow_inf_nan=False)
    """Two best answers whose probabilities differ by no more are a tie."""
    policy: Text | None = None
    """A named policy of the service; the other settings change it."""
    deadline_ms: int | None = Field(None, ge=1, le=MAX_DEADLINE_MS)

    @model_validator(mode="after")
    def _one_problem(self) -> "VerifyRequest":
        if (self.problem is None) == (self.messages is None):
            raise ValueError("give exactly one of 'problem' and 'messages'")
        return self


class CandidateVerdict(Body):
    """What is known of one candidate. Energies: lower is better."""

    candidate_id: str
    confidence: float | None
    """Probability that its answer is right, among the candidates of the request; null without a fitted posterior or an
    answer."""
    flags: list[Flag]
    author: str | None = None
    """Null where the request was blind."""
    answer: str | None
    energy: float | None
    mu: float | None
    sigma: float | None
    penalty: float | None
    violations: list[ViolationBody]
    error: str | None


class VerifyResponse(Body):
    id: str
    object: Literal["verification"] = "verification"
    created: int
    disposition: Disposition
    """approve: the selected candidate can be given out; redo: none can, try again; reject: none is right, by an exact
    constraint, or none holds an answer and nothing can be tried again; tie: the two best answers are equally good;
    abstain: nothing can be said."""
    confidence: float | None
    """Probability that the selected answer is right; null without a fitted posterior or a selection."""
    reason_codes: list[ReasonCode]
    reason: str
    """The same as a sentence."""
    kind: Literal["deterministic_outcome", "outcome_reward_model"]
    """deterministic_outcome: an exact constraint decided."""
    version: str
    """Versions of everything that decided: raydebm, checkpoint, policy."""
    selected: str | None
    """Id of the best candidate, also where it is not approved; null where nothing could be selected."""
    scores: list[CandidateVerdict]
    """In the order of the candidates."""
    usage: Usage
    latency_ms: int
    task: str | None
    """Null where no task can read the problem."""
    problem_id: str | None
    blind: bool
