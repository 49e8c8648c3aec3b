"""Recipe section ``baselines``: models of others that rank the same candidates."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from raydebm.config.generators import OpenAIGenerator, TransformersGenerator, VllmGenerator
from raydebm.config.section import Section


class BaselineBase(Section):
    name: str
    """Of the selector in reports."""


class LocalModelBaseline(BaselineBase):
    model: str
    """Hub name or local folder."""
    device: str = "auto"
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    max_length: int | None = Field(None, ge=16)
    """Tokens; None: the model's context. A longer text is not scored, because a score of half a text is none."""
    micro_batch_tokens: int = Field(8192, ge=1)
    """Padded tokens of one forward pass."""


class RewardModelBaseline(LocalModelBaseline):
    """Any AutoModelForSequenceClassification, such as ``Skywork/Skywork-Reward-Llama-3.1-8B-v0.2``."""

    kind: Literal["reward_model"] = "reward_model"
    label: int = Field(0, ge=0)
    """Which logit is the reward."""
    input_format: Literal["auto", "chat", "pair"] = "auto"
    """``chat``: a conversation in the tokenizer's chat template; ``pair``: two segments, as encoders take them;
    ``auto``: chat where the tokenizer has a template."""


class ProcessRewardBaseline(LocalModelBaseline):
    """A model that judges each step of a solution. The defaults are those of ``peiyi9979/math-shepherd-mistral-7b-prm``
    (minimum over steps, its paper's choice)."""

    kind: Literal["process_reward"] = "process_reward"
    head: Literal["next_token", "token_classification"] = "next_token"
    """Where a step's probability is read at the step token: the next token's logits of ``good_token`` and
    ``bad_token``, or the class ``label`` of an AutoModelForTokenClassification."""
    step_separator: str = r"\n+"
    """Regular expression between the steps of a candidate."""
    step_prefix: str = "Step {n}: "
    """Put before a step that does not begin so; ``{n}`` counts from 1."""
    step_token: str = "ки"
    good_token: str = "+"
    bad_token: str = "-"
    label: int = Field(1, ge=0)
    aggregate: Literal["min", "mean", "product", "last"] = "min"


class JudgeBaseline(BaselineBase):
    """An LLM that rates each candidate from 1 to 10."""

    kind: Literal["judge"] = "judge"
    generator: OpenAIGenerator | TransformersGenerator | VllmGenerator = Field(discriminator="kind")
    criteria: str = "Is the final answer right, and is every step that leads to it sound?"
    """What the judge is asked to rate."""
    max_tokens: int = Field(1024, ge=1)
    temperature: float = Field(0.0, ge=0)


class EormBaseline(BaselineBase):
    """EORM (Jiang et al., 2025), trained from scratch on the run's own pairs. Defaults: the authors' released code."""

    kind: Literal["eorm"] = "eorm"
    tokenizer: str = "gpt2"
    """Hub name, local folder, ``embedded:<name>`` or ``package:minilm``; only its tokenizer is used."""
    hidden_size: int = Field(768, ge=8)
    num_layers: int = Field(2, ge=1)
    num_heads: int = Field(4, ge=1)
    dropout: float = Field(0.2, ge=0, lt=1)
    positions: bool = False
    """Add sinusoidal positions. The released model has none: it sees a bag of tokens."""
    max_length: int = Field(2048, ge=16)
    """Tokens; a longer problem is cut in its middle."""
    learning_rate: float = Field(5e-5, gt=0)
    weight_decay: float = Field(0.01, ge=0)
    warmup_frac: float = Field(0.1, ge=0, lt=1)
    max_epochs: int = Field(20, ge=1)
    problems_per_step: int = Field(1, ge=1)
    micro_batch_tokens: int = Field(8192, ge=1)
    device: str = "auto"
    seed: int = 0

    @model_validator(mode="after")
    def _divisible(self) -> "EormBaseline":
        if self.hidden_size % (2 * self.num_heads):
            raise ValueError(
                f"eorm: hidden_size must be a multiple of 2 * num_heads, got {self.hidden_size} and {self.num_heads}"
            )
        return self


class PairRankerBaseline(LocalModelBaseline):
    """An encoder that reads two candidates at once, such as ``llm-blender/PairRM-hf``."""

    kind: Literal["pair_ranker"] = "pair_ranker"
    max_problem_tokens: int = Field(1224, ge=1)
    """A longer problem is cut in its middle."""
    max_candidate_tokens: int = Field(412, ge=1)
    """A longer candidate loses its beginning: its answer stands at the end."""
    max_rivals: int | None = Field(None, ge=1)
    """Candidates that each one is compared with; None: all others."""
    aggregate: Literal["wins", "logits"] = "wins"
    """Share of comparisons won, or the mean difference of logits."""


BaselineConfig = Annotated[
    RewardModelBaseline | ProcessRewardBaseline | JudgeBaseline | EormBaseline | PairRankerBaseline,
    Field(discriminator="kind"),
]
