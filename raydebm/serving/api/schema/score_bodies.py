"""Bodies of ``POST /v1/score``, which reranking and rewards are made of.

Does not know: Ray, HTTP, tasks.
"""

from typing import Literal

from pydantic import BaseModel, Field, model_validator

from raydebm.serving.api.schema.candidate_bodies import Usage, ViolationBody
from raydebm.serving.api.schema.request_bodies import ProblemBody
from raydebm.serving.settings.fields import Body, NotNegative, Text
from raydebm.serving.settings.overrides import MAX_DEADLINE_MS

MAX_CANDIDATES_TO_SCORE = 512


class ScoreRequest(Body):
    """Either a problem with candidates (checked and scored), or vLLM's ``text_1`` and ``text_2`` (scored only)."""

    task: Text | None = None
    problem: Text | ProblemBody | None = None
    candidates: list[Text] | None = Field(None, min_length=1, max_length=MAX_CANDIDATES_TO_SCORE)
    lambda_: NotNegative | None = Field(None, alias="lambda")
    deadline_ms: int | None = Field(None, ge=1, le=MAX_DEADLINE_MS)
    """Milliseconds from the request's arrival; what is not scored by then is not scored at all."""
    text_1: Text | list[Text] | None = None
    """Problem text: one, or one for each ``text_2``."""
    text_2: Text | list[Text] | None = None
    model: str | None = None
    """With ``text_1`` and ``text_2``: the id of a served task, whose ensemble scores; else the first one's."""

    @model_validator(mode="after")
    def _one_shape(self) -> "ScoreRequest":
        ours = self.problem is not None and self.candidates is not None
        theirs = self.text_1 is not None and self.text_2 is not None
        halves = {self.problem is None, self.candidates is None}, {self.text_1 is None, self.text_2 is None}
        if ours == theirs or any(len(half) == 2 for half in halves):
            raise ValueError("give either 'problem' and 'candidates', or 'text_1' and 'text_2'")
        if theirs and (self.task is not None or self.lambda_ is not None):
            raise ValueError("'task' and 'lambda' belong to 'problem' and 'candidates', not to 'text_1' and 'text_2'")
        return self

    def text_pairs(self) -> list[tuple[str, str]]:
        """(problem, candidate) of vLLM's shape; one ``text_1`` goes with every ``text_2``.

        Raises:
            ValueError: the two lists differ in length, are empty or too long.
        """
        first = [self.text_1] if isinstance(self.text_1, str) else list(self.text_1 or ())
        second = [self.text_2] if isinstance(self.text_2, str) else list(self.text_2 or ())
        if len(first) == 1:
            first = first * len(second)
        if len(first) != len(second) or not second:
            raise ValueError(f"text_1 has {len(first)} text(s) and text_2 has {len(second)}; they must match")
        if len(second) > MAX_CANDIDATES_TO_SCORE:
            raise ValueError(f"text_2 has {len(second)} texts; at most {MAX_CANDIDATES_TO_SCORE} in one request")
        return list(zip(first, second, strict=True))


class ScoreItem(BaseModel):
    """``score`` is -energy: higher is better, as rerankers have it. Null where there is no finite energy."""

    index: int
    confidence: float | None = None
    """Probability that its answer is right, among the candidates of the request; null without a task or a posterior."""
    object: Literal["score"] = "score"
    score: float | None
    energy: float | None
    mu: float | None
    sigma: float | None
    members: list[float] | None
    num_tokens: int | None
    num_truncated: int | None
    answer: str | None = None
    penalty: float | None = None
    violations: list[ViolationBody] | None = None
    """Null in vLLM's shape, where no task is known and nothing is checked."""
    error: str | None = None


class ScoreResponse(BaseModel):
    id: str
    object: Literal["list"] = "list"
    created: int
    model: str
    data: list[ScoreItem]
    usage: Usage
    versions: dict[str, str]
