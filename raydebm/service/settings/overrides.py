"""Changes for one request: settings of its policy, its limits, and its sampling; and field types for clients' values.

Texts, numbers and JSON values of clients and operators can be serialised again. Request bodies and named policies are
built from these. Does not know: HTTP, Ray.
"""

import json
from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, create_model

from raydebm.config.policy import PolicySettings
from raydebm.decision.policy import LIMITS, Policy

Finite = Annotated[float, Field(allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Probability = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
MAX_DEPTH = 64
"""Maximum nesting of a client's own objects. Serialisers of responses fail at a few hundred."""


def writable(value: Any) -> Any:
    """Refuse values that cannot be serialised again: lone surrogates, which JSON can spell and neither UTF-8 nor a
    tokenizer can hold, NaN, infinities, and excessive nesting."""
    try:
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError("holds a lone surrogate (such as \\ud800), which is not text") from error
    except RecursionError as error:
        raise ValueError(f"is nested more than {MAX_DEPTH} deep") from error
    except ValueError as error:
        raise ValueError("holds NaN or an infinity, which JSON has no number for") from error
    level, depth = [value], 0
    while level := [part for inner in level for part in _inside(inner)]:
        depth += 1
        if depth > MAX_DEPTH:
            raise ValueError(f"is nested more than {MAX_DEPTH} deep")
    return value


def _inside(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


Text = Annotated[str, AfterValidator(writable)]
Data = Annotated[dict[str, Any], AfterValidator(writable)]


class Body(BaseModel):
    """Base of our own request bodies: unknown fields are refused."""

    model_config = ConfigDict(use_attribute_docstrings=True, extra="forbid", populate_by_name=True)


MAX_SAMPLES = 64
"""Maximum number of candidates per generator and pass in one request."""
MAX_PASSES = 8
MAX_DEADLINE_MS = 3_600_000
SEED_LIMIT = 2**63

_MOST = {
    "max_passes": MAX_PASSES,
    "num_regenerate": MAX_SAMPLES,
    "budget": MAX_PASSES * MAX_SAMPLES,
    "deadline_ms": MAX_DEADLINE_MS,
    "max_usd": 1e6,
}
"""Maximum values by field."""


def _with_policy_settings(body: "type[Overrides]") -> "type[Overrides]":
    """Add the settings of ``Policy`` as optional fields with their documentation. Default: None, not given."""
    names = [name for name in PolicySettings.model_fields if name != "waves"] + ["profile", "lambda_", *LIMITS]
    fields: dict[str, Any] = {}
    for name in names:
        setting = Policy.model_fields[name]
        kind: Any = setting.rebuild_annotation()
        kind = Annotated[kind, Field(le=_MOST[name])] if name in _MOST else kind
        fields[name] = (kind | None, Field(None, alias=setting.alias, description=setting.description))
    return create_model(body.__name__, __base__=body, __module__=body.__module__, __doc__=body.__doc__, **fields)


@_with_policy_settings
class Overrides(Body):
    """Settings that a request may change. Default: those of the calibrated policy and the recipe."""

    waves: list[Annotated[int, Field(ge=1, le=MAX_SAMPLES)]] | None = Field(None, max_length=MAX_SAMPLES)
    """Sizes of the waves in which a pass is sampled; the last size repeats. An empty list: one wave for all."""
    num_samples: int | None = Field(None, ge=1, le=MAX_SAMPLES)
    """Candidates of each generator in pass 1."""
    generators: list[Text] | None = Field(None, min_length=1)
    """A subset of the service's generators."""
    seed: int | None = Field(None, ge=-SEED_LIMIT, lt=SEED_LIMIT)
    """Seed of the candidates. Default: the recipe's seed, so that the run's own problems give the run's candidates."""
    return_candidates: bool = False
    policy: Text | None = None
    """Named policy, as in the model id ``raydebm/<task>@<policy>``. Other fields override its settings."""

    def policy_changes(self) -> dict[str, Any]:
        """The given settings and limits, by the policy's own names."""
        return self.model_dump(by_alias=True, include=set(Policy.model_fields), exclude_none=True)


class SamplingOverrides(BaseModel):
    """Sampling settings of a request. Default: the recipe's."""

    temperature: float | None = Field(None, ge=0, le=2, allow_inf_nan=False)
    top_p: float | None = Field(None, gt=0, le=1, allow_inf_nan=False)
    max_tokens: int | None = Field(None, ge=1)
    stop: tuple[str, ...] | None = None


OnAbstain = Literal["refuse", "text", "best", "error"]


class ChatOverrides(Overrides):
    """The ``raydebm`` object of a chat request, and a named policy of the service."""

    on_abstain: OnAbstain = "refuse"
    """Response to an abstention. refuse: a refusal in OpenAI's format; text: its words as content, for clients that do
    not show refusals; best: the selected text anyway; error: HTTP 422."""
    kind: Annotated[Text, Field(max_length=200)] = ""
    """Kind of question, as in the run's problems; authors' skills differ by kind. Default: what the task reads from the
    text."""
    progress: Literal["comments", "events", "none"] = "comments"
    """Progress in a stream: SSE comments, which every client skips, named events for browsers, or none."""
