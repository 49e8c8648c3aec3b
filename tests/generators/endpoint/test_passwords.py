"""A password in an endpoint's address is refused, and a key or a proxy's password stands in no message."""

import pytest

from raydebm.config import OpenAIGenerator, parse_recipe
from raydebm.errors import ConfigError
from raydebm.generators.endpoint.openai_api import failure_text
from raydebm.generators.replies import ReplyError

URL = "http://team:hunter2@server/v1"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"base_url": URL}, "'g' has a user in its address.*in api_key_env"),
        ({"base_url": "http://server", "replica_urls": [URL]}, "'g' has a user in its address"),
        ({"base_url": "http://server", "replica_urls": [URL, URL]}, "generators.0.*listed twice"),
        ({"base_url": [URL]}, "generators.0.*base_url"),
    ],
)
def test_a_password_is_refused_and_in_no_message_about_a_recipe(settings, message):
    generator = {"kind": "openai", "name": "g", "model": "m", **settings}
    with pytest.raises(ConfigError, match=message) as caught:
        parse_recipe({"name": "x", "task": {"name": "gsm8k"}, "generators": [generator]})
    assert "hunter2" not in str(caught.value)


def test_neither_the_key_nor_a_proxys_password_is_in_an_error():
    config = OpenAIGenerator(name="g", model="m", base_url="http://server/v1")
    error = ReplyError("HTTP 400: sk-secret is no key, says http://team:hunter2@proxy")
    assert failure_text(error, config, key="sk-secret") == (
        "http://server/v1: HTTP 400: *** is no key, says http://***@proxy"
    )


def test_what_is_no_address_becomes_an_error_row(ask, drawn):
    config = OpenAIGenerator(name="g", model="m", base_url="http://[::1/v1", api_key_env=None, max_retries=0)
    (candidate,) = drawn(config, ask())
    assert "connection failed" in candidate.error
