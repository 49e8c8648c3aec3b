"""Changes for one request: settings of its policy, its limits, and its sampling.

Does not know: HTTP, Ray. Request bodies, named policies and the options of ``raydebm replay`` are built from these.
"""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, Field, create_model
from pydantic.fields import FieldInfo

from raydebm.config.policy import PolicySettings
from raydebm.decision.policy import LIMITS, Policy
from raydebm.serving.settings.fields import Body, Text

MAX_SAMPLES = 64
"""Maximum number of candidates per generator and pass in one request."""
MAX_PASSES = 8
MAX_DEADLINE_MS = 3_600_000
SEED_LIMIT = 2**63

BodyType = TypeVar("BodyType", bound=Body)


def settings_of_policy(*names: str, most: Mapping[str, float]) -> Callable[[type[BodyType]], type[BodyType]]:
    """Class decorator that adds settings of ``Policy`` as optional fields with their documentation. Default: None, not
    given.

    Args:
        names: names of the settings.
        most: maximum values by field.
    """

    def decorate(body: type[BodyType]) -> type[BodyType]:
        fields: dict[str, Any] = {name: _optional(Policy.model_fields[name], most.get(name)) for name in names}
        return create_model(body.__name__, __base__=body, __module__=body.__module__, __doc__=body.__doc__, **fields)

    return decorate


def _optional(setting: FieldInfo, most: float | None) -> tuple[Any, Any]:
    kind: Any = setting.rebuild_annotation()
    if most is not None:
        kind = Annotated[kind, Field(le=most)]
    return kind | None, Field(None, alias=setting.alias, description=setting.description)


@settings_of_policy(
    *(name for name in PolicySettings.model_fields if name != "waves"),
    "profile",
    "lambda_",
    most={"max_passes": MAX_PASSES, "num_regenerate": MAX_SAMPLES},
)
class PolicyChanges(Body):
    """Settings of the policy that a request or a replay may change; everything left out stays."""

    waves: list[Annotated[int, Field(ge=1, le=MAX_SAMPLES)]] | None = Field(None, max_length=MAX_SAMPLES)
    """Sizes of the waves in which a pass is sampled, the last one repeating; an empty list: the whole pass at once."""

    def policy_changes(self) -> dict[str, Any]:
        """The given settings and limits, by the policy's own names."""
        return self.model_dump(by_alias=True, include=set(Policy.model_fields), exclude_none=True)


@settings_of_policy(*LIMITS, most={"budget": MAX_PASSES * MAX_SAMPLES, "deadline_ms": MAX_DEADLINE_MS, "max_usd": 1e6})
class Overrides(PolicyChanges):
    """What one request may change; everything left out comes from the calibrated policy and the recipe."""

    num_samples: int | None = Field(None, ge=1, le=MAX_SAMPLES)
    """Candidates of each generator in pass 1."""
    generators: list[Text] | None = Field(None, min_length=1)
    """A subset of the service's generators."""
    seed: int | None = Field(None, ge=-SEED_LIMIT, lt=SEED_LIMIT)
    """Same seed, same candidates; None: the recipe's seed, so that the run's own problems give the run's candidates."""
    return_candidates: bool = False
    policy: Text | None = None
    """A named policy, as in the model id ``raydebm/<task>@<policy>``; the other fields change it."""


class SamplingOverrides(BaseModel):
    """How candidates are drawn, where a request differs from the recipe."""

    temperature: float | None = Field(None, ge=0, le=2, allow_inf_nan=False)
    top_p: float | None = Field(None, gt=0, le=1, allow_inf_nan=False)
    max_tokens: int | None = Field(None, ge=1)
    stop: tuple[str, ...] | None = None


OnAbstain = Literal["refuse", "text", "best", "error"]


class ChatOverrides(Overrides):
    """The ``raydebm`` object of a chat request, and a named policy of the service."""

    on_abstain: OnAbstain = "refuse"
    """refuse: a refusal in OpenAI's shape; text: its words as content, for clients that show no refusals; best: the
    selected text all the same; error: HTTP 422."""
    progress: Literal["comments", "events", "none"] = "comments"
    """How a stream reports progress: SSE comments (every client skips them), named events for browsers, or not."""
