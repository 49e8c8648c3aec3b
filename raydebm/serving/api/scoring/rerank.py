"""``POST /v1/rerank`` in the shapes of Cohere, Jina and vLLM: the query is a problem, the documents are candidates.

``relevance_score`` is ``-energy``: higher is better and unbounded, for it is no probability. ``confidence``, which is
one, stands next to it with ``mu``, ``sigma`` and ``members``, where clients of those shapes do not look.
"""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from raydebm.errors import ServiceError
from raydebm.serving.api.model_ids import parse_model
from raydebm.serving.api.named_policies import merged_overrides
from raydebm.serving.api.schema.candidate_bodies import Usage, ViolationBody
from raydebm.serving.api.schema.score_bodies import MAX_CANDIDATES_TO_SCORE, ScoreItem, ScoreRequest
from raydebm.serving.api.scoring.score_items import get_scores, task_of_scores
from raydebm.serving.core.service import TriageService
from raydebm.serving.settings.fields import Body, NotNegative, Text, writable
from raydebm.serving.settings.overrides import Overrides

NO_ANSWER_SCORE = -1e6
"""Score of a document without an answer or an energy (E = infinity): clients need a number, which infinity is not."""


class Document(BaseModel):
    """Cohere's and Jina's object; fields in addition to the text come back when documents are wanted."""

    model_config = ConfigDict(use_attribute_docstrings=True, extra="allow")

    text: Text

    @model_validator(mode="after")
    def _writable(self) -> "Document":
        writable(self.model_extra)
        return self


class RerankOverrides(Body):
    """The ``raydebm`` object of a rerank request."""

    task: Text | None = None
    lambda_: NotNegative | None = Field(None, alias="lambda")


class RerankRequest(BaseModel):
    """Unknown fields are tolerated: the three dialects have many that change nothing here."""

    model_config = ConfigDict(use_attribute_docstrings=True, extra="ignore")

    model: Text | None = None
    """``raydebm/<task>``: the query must be a problem of that task, and constraints count. Absent: they count where
    the only served task can read the query."""
    query: Text = Field(min_length=1)
    documents: list[Text | Document] = Field(min_length=1, max_length=MAX_CANDIDATES_TO_SCORE)
    top_n: Annotated[int, Field(ge=1)] | None = None
    return_documents: bool = False
    raydebm: RerankOverrides | None = None


class RerankResult(BaseModel):
    index: int
    """Place of the document in the request."""
    relevance_score: float
    document: dict[str, Any] | None = None
    """Only when ``return_documents`` is set."""
    confidence: float | None
    """Probability that its answer is right, among the documents of the request; null without a task or a posterior."""
    energy: float | None
    mu: float | None
    sigma: float | None
    members: list[float] | None
    answer: str | None
    penalty: float | None
    violations: list[ViolationBody] | None
    """Null where no task could read the query, so that nothing was checked."""
    error: str | None


class RerankResponse(BaseModel):
    id: str
    model: str
    task: str | None
    """Whose constraints were checked; null: none."""
    results: list[RerankResult]
    """Best first."""
    usage: Usage
    meta: dict[str, Any]
    """What Cohere's clients read."""
    versions: dict[str, str]


async def rerank(
    service: TriageService, request: RerankRequest, *, request_id: str, received: float | None = None
) -> RerankResponse:
    """Score the documents and sort them; equal scores keep the order of the request.

    Args:
        service: has the ensemble.
        request: what to rank.
        request_id: for the answer.
        received: ``time.perf_counter()`` when it arrived; None: now.

    Raises:
        ServiceError: unknown model, a text that is too long, or a part that does not work; 504 when there is not enough
            time for it.
    """
    task, asked = _asked(service, request)
    scored = await get_scores(service, asked, request_id=request_id, received=received)
    ranked = sorted(scored.data, key=_rank)[: request.top_n]
    return RerankResponse(
        id=f"rerank-{request_id}",
        model=request.model or scored.model,
        task=task,
        results=[_result(score, request.documents[score.index], request.return_documents) for score in ranked],
        usage=scored.usage,
        meta={"api_version": {"version": "2"}, "billed_units": {"search_units": 1}},
        versions=scored.versions,
    )


def _asked(service: TriageService, request: RerankRequest) -> tuple[str | None, ScoreRequest]:
    """The task whose constraints count, and what is to be scored."""
    texts = [document if isinstance(document, str) else document.text for document in request.documents]
    named, policy = (None, None) if request.model is None else parse_model(service.bundle, request.model)
    changes = request.raydebm or RerankOverrides()
    own = Overrides.model_validate(changes.model_dump(by_alias=True, include={"lambda_"}, exclude_unset=True))
    merged = merged_overrides(service.bundle, own, policy=policy)
    lambda_ = merged.policy_changes().get("lambda")
    wanted = changes.task or named
    asked = ScoreRequest.model_validate(
        {"task": wanted, "problem": request.query, "candidates": texts, "lambda": lambda_}
    )
    try:
        return task_of_scores(service.bundle, asked), asked
    except ServiceError as error:
        if wanted is not None or error.code != "not_a_problem":
            raise
        return None, ScoreRequest(text_1=request.query, text_2=texts)


def _rank(score: ScoreItem) -> tuple[bool, float, float]:
    """Those without an energy come last, by mu where there is one."""
    unscored = score.energy is None
    return unscored, 0.0 if score.energy is None else score.energy, float("inf") if score.mu is None else score.mu


def _result(score: ScoreItem, document: str | Document, wanted: bool) -> RerankResult:
    shown = {"text": document} if isinstance(document, str) else document.model_dump()
    return RerankResult(
        index=score.index,
        relevance_score=NO_ANSWER_SCORE if score.score is None else score.score,
        document=shown if wanted else None,
        **score.model_dump(include={"confidence", "energy", "mu", "sigma", "members", "answer", "penalty", "error"}),
        violations=score.violations,
    )
