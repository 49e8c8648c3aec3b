"""Recipe section ``baselines``: third-party models that rank the same candidates."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from raydebm.config.generators import AskedGenerator, ServedGenerator
from raydebm.config.section import Device, FolderName, Section


class BaselineBase(Section):
    learns_from_pairs: ClassVar[bool] = False
    """Whether it is trained on the run's own pairs."""

    name: FolderName
    """Name of the selector in reports, and of the files of its scores."""


class EvidenceBaseline(BaselineBase):
    evidence: bool = False
    """Whether its scores are evidence of the posterior, and not only a selector of reports. Training candidates are
    then scored too, and the service loads the model."""


class LocalModelBaseline(BaselineBase):
    model: str
    """Hub name, local folder or ``embedded:<name>``."""
    device: Device = "auto"
    """auto: the first visible GPU, else the CPU."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """auto: bfloat16 on GPUs, float32 on CPUs."""
    max_length: int | None = Field(None, ge=16)
    """Tokens; None: the model's context. A longer text is not scored, because half a text has no meaningful score."""
    micro_batch_tokens: int = Field(8192, ge=1)
    """Padded tokens per forward pass."""


class RewardModelBaseline(LocalModelBaseline, EvidenceBaseline):
    """Any AutoModelForSequenceClassification, such as ``Skywork/Skywork-Reward-Llama-3.1-8B-v0.2``."""

    kind: Literal["reward_model"] = "reward_model"
    """A sequence classifier."""
    label: int = Field(0, ge=0)
    """Index of the logit that is the reward."""
    input_format: Literal["auto", "chat", "pair"] = "auto"
    """``chat``: a conversation in the tokenizer's chat template; ``pair``: two segments, as encoders take them;
    ``auto``: chat where the tokenizer has a template."""


class ProcessRewardBaseline(LocalModelBaseline, EvidenceBaseline):
    """A model that judges each step of a solution, as ``peiyi9979/math-shepherd-mistral-7b-prm`` does (minimum over
    steps, its paper's choice)."""

    kind: Literal["process_reward"] = "process_reward"
    """A model that judges steps."""


class JudgeBaseline(BaselineBase):
    """An LLM that rates each candidate, from 1 to 10 by default."""

    kind: Literal["judge"] = "judge"
    """An LLM as judge."""
    generator: AskedGenerator
    """The model that judges. A vLLM server needs its ``url``: none is started for a judge."""
    criteria: str = "Is the final answer right, and is every step that leads to it sound?"
    """What the judge is asked to rate."""
    highest: int = Field(10, ge=2, le=100)
    """Ratings are from 1 to this number; the paper rates plans from 1 to 5."""


class EormBaseline(BaselineBase):
    """EORM (Jiang et al., 2025), trained from scratch on the run's own pairs. Defaults: the authors' released code."""

    learns_from_pairs: ClassVar[bool] = True
    kind: Literal["eorm"] = "eorm"
    """A transformer trained from scratch."""
    tokenizer: str = "gpt2"
    """Hub name, local folder, ``embedded:<name>`` or ``package:minilm``; only its tokenizer is used."""
    hidden_size: int = Field(768, ge=8)
    """A multiple of 2 * num_heads."""
    num_layers: int = Field(2, ge=1)
    """Transformer layers."""
    num_heads: int = Field(4, ge=1)
    """Attention heads per layer."""
    max_length: int = Field(2048, ge=16)
    """Tokens; longer texts are cut as the scorer's are (docs/training.md)."""
    learning_rate: float = Field(5e-5, gt=0)
    """AdamW learning rate."""
    max_epochs: int = Field(20, ge=1)
    """Maximum number of epochs."""
    micro_batch_tokens: int = Field(8192, ge=1)
    """Padded tokens per forward pass."""

    @model_validator(mode="after")
    def _divisible(self) -> "EormBaseline":
        if self.hidden_size % (2 * self.num_heads):
            raise ValueError(
                f"eorm: hidden_size must be a multiple of 2 * num_heads, got {self.hidden_size} and {self.num_heads}"
            )
        return self


class ReaderBaseline(LocalModelBaseline, EvidenceBaseline):
    """A causal language model that reads problem and answer, such as ``Qwen/Qwen2.5-0.5B-Instruct``, without training:
    a likely answer, each of whose tokens leaves few alternatives, is more often right."""

    kind: Literal["reader"] = "reader"
    """A causal language model that reads the answer."""
    evidence: bool = True
    """Whether its signals are evidence of the posterior, and not only selectors of reports."""
    input_format: Literal["plain", "chat"] = "plain"
    """``plain``: the problem, a newline, the answer; ``chat``: a conversation in the tokenizer's chat template."""
    micro_batch_tokens: int = Field(2048, ge=1)
    """Padded tokens per forward pass. The logits of a large vocabulary take 0.6 MB per token."""


class ServedReaderBaseline(EvidenceBaseline):
    """A reader behind an endpoint that returns the log-probabilities of a prompt, such as a vLLM server that writes
    candidates too: so generators read each other's answers."""

    kind: Literal["served_reader"] = "served_reader"
    """A causal language model behind an endpoint."""
    generator: ServedGenerator
    """The model that reads. A vLLM server needs its ``url``: none is started for a reader."""
    evidence: bool = True
    """Whether its two signals are evidence of the posterior, and not only selectors of reports."""


BaselineConfig = Annotated[
    RewardModelBaseline | ProcessRewardBaseline | JudgeBaseline | EormBaseline | ReaderBaseline | ServedReaderBaseline,
    Field(discriminator="kind"),
]
