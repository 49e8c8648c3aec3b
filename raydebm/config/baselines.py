"""Recipe section ``baselines``: third-party models that rank the same candidates."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from raydebm.config.generators import AskedGenerator
from raydebm.config.section import FolderName, Section


class BaselineBase(Section):
    learns_from_pairs: ClassVar[bool] = False
    """Whether it is trained on the run's own pairs."""

    name: FolderName
    """Name of the selector in reports, and of the files of its scores."""

    @property
    def is_evidence(self) -> bool:
        """Whether its scores are evidence for the posterior, and not only a selector in reports."""
        return False


class ModelBaseline(BaselineBase):
    """A local model, on the first visible GPU in bfloat16, else on the CPU."""

    kind: Literal["reward_model", "process_reward", "reader"]
    """``reward_model``: any AutoModelForSequenceClassification, such as ``Skywork/Skywork-Reward-Llama-3.1-8B-v0.2``.
    ``process_reward``: a model that judges each step of a solution, such as ``peiyi9979/math-shepherd-mistral-7b-prm``
    (minimum over steps, as in its paper). ``reader``: a causal language model that reads problem and answer without
    training, such as ``Qwen/Qwen2.5-0.5B-Instruct``: answers whose tokens it finds likely, with few alternatives, are
    more often right."""
    model: str
    """Hub name, local folder or ``embedded:<name>``."""
    max_length: int | None = Field(None, ge=16)
    """Maximum tokens of a text. Default: the model's context. A reader cuts a longer text as the scorer does; other
    models do not score it, because half a text has no meaningful score."""
    evidence: bool | None = None
    """Use its scores as evidence for the posterior, not only as a selector in reports. The service then loads the
    model, and training candidates are scored too if the posterior learns from them. Default: true for a reader only."""

    @property
    def is_evidence(self) -> bool:
        return self.kind == "reader" if self.evidence is None else self.evidence


class JudgeBaseline(BaselineBase):
    """An LLM that rates each candidate, from 1 to 10 by default."""

    kind: Literal["judge"] = "judge"
    """An LLM as judge."""
    generator: AskedGenerator
    """The model that judges. A vLLM server needs its ``url``, because none is started for a judge."""
    criteria: str = "Is the final answer right, and is every step that leads to it sound?"
    """Criteria of the rating, as a question to the judge."""
    highest: int = Field(10, ge=2, le=100)
    """Highest rating; the lowest is 1. The paper rates plans from 1 to 5."""


class EormBaseline(BaselineBase):
    """EORM (Jiang et al., 2025), trained from scratch on the run's own pairs."""

    learns_from_pairs: ClassVar[bool] = True
    kind: Literal["eorm"] = "eorm"
    """A transformer trained from scratch."""
    size: Literal["published", "small"] = "published"
    """``published``: the authors' released code. ``small``: for two CPU cores, with MiniLM's tokenizer
    (docs/baselines.md)."""


BaselineConfig = Annotated[ModelBaseline | JudgeBaseline | EormBaseline, Field(discriminator="kind")]
