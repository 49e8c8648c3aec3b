"""Response bodies about one candidate, and the tokens of many. Energies: lower is better."""

from pydantic import BaseModel


class Usage(BaseModel):
    """Summed over every candidate of every pass. Generators that report no usage count 0."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    total_tokens: int = 0


class ViolationBody(BaseModel):
    constraint: str
    penalty: float
    """C_j > 0, before the weight."""
    weight: float
    message: str


class CandidateBody(BaseModel):
    """One candidate as it stood when the decision was made. Energies: lower is better."""

    candidate_id: str
    generator: str
    pass_index: int
    sample_index: int
    text: str | None
    error: str | None
    """Why there is no text, no answer or no energy."""
    answer: str | None
    """The parsed answer in canonical text."""
    energy: float | None
    """E = mu + lambda * E_constraint; null when it did not parse or could not be scored (E = infinity)."""
    mu: float | None
    sigma: float | None
    """Population standard deviation over the adapters (ddof=0)."""
    members: list[float] | None
    """One energy per adapter."""
    penalty: float | None
    """E_constraint; null when it did not parse."""
    violations: list[ViolationBody]
    num_tokens: int | None
    num_truncated: int | None
    """Problem tokens that did not fit the scorer's context."""
    completion_tokens: int | None
    finish_reason: str | None
    """Why the generator stopped, where it says so; ``length``: the text was cut at ``max_tokens``."""
    cost_usd: float | None
