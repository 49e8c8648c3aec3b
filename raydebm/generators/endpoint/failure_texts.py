"""What an error row says of an endpoint: which one, what happened, and what to do about it."""

from raydebm.config import OpenAIGenerator
from raydebm.generators.endpoint.api_keys import without_secrets
from raydebm.generators.endpoint.transports import CarrierError
from raydebm.generators.replies import ReplyError


def failure_text(error: ReplyError | CarrierError, config: OpenAIGenerator, *, key: str | None) -> str:
    """The text of an error row, which has neither the key nor a password.

    Args:
        error: what happened.
        config: the endpoint's.
        key: the one that was sent, which an endpoint may repeat in its own words.
    """
    text = str(error)
    status, failure = (error.status, error.failure) if isinstance(error, ReplyError) else (None, None)
    if status in (401, 403):
        variable = config.api_key_env
        source = f"the key in environment variable {variable}" if variable else "a request without a key"
        text += f" (the endpoint refused {source}; check the key, or set the generator's api_key_env)"
    elif status == 404:
        text += f" (is {config.model!r} a model of this endpoint, and does it take these parameters?)"
    elif status == 402:
        text += " (add credit at the provider or ask for fewer tokens, then repeat the command with --retry-failed)"
    return without_secrets(text if failure is not None else f"{config.base_url}: {text}", config, key)
