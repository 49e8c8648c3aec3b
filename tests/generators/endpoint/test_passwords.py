"""User and password in an endpoint's address: they are sent, and stand in no message. Both transports must pass."""

import asyncio
import base64

import pytest

from raydebm.config import OpenAIGenerator, parse_recipe
from raydebm.errors import ConfigError
from raydebm.generators.endpoint.openai_api import OpenAIApiGenerator
from raydebm.generators.requests import collect

TOKEN = base64.b64encode(b"team:hunter 2").decode()


@pytest.fixture
def answer(server):
    """The one candidate of a server whose address has a user and a password."""

    def run(asked, **settings):
        async def session():
            url = server.url.replace("//", "//team:hunter%202@")
            config = OpenAIGenerator(**{"name": "g", "model": "m", "base_url": url, "api_key_env": None, **settings})
            generator = OpenAIApiGenerator(config)
            try:
                return await collect(generator, [asked])
            finally:
                await generator.aclose()

        (candidate,) = asyncio.run(session())
        return candidate

    return run


def test_user_and_password_are_sent_as_such(answer, ask, server):
    assert answer(ask()).error is None
    headers = {name.lower(): value for name, value in server.headers[0].items()}
    assert headers["authorization"] == f"Basic {TOKEN}"


def test_a_password_is_in_no_error(answer, ask, refusing_port):
    candidate = answer(ask(), base_url=f"http://team:hunter2@127.0.0.1:{refusing_port}/v1", max_retries=0)
    assert f"http://***@127.0.0.1:{refusing_port}/v1" in candidate.error
    assert "hunter2" not in candidate.error


def test_a_password_is_in_no_log(answer, ask, caplog):
    answer(ask("p: refuses logprobs"), logprobs=True)
    assert "does not return log-probabilities" in caplog.text
    assert "hunter" not in caplog.text


def test_what_is_no_address_becomes_an_error_row(ask):
    async def session():
        config = OpenAIGenerator(name="g", model="m", base_url="http://[::1/v1", api_key_env=None, max_retries=0)
        return await collect(OpenAIApiGenerator(config), [ask()])

    (candidate,) = asyncio.run(session())
    assert "connection failed" in candidate.error


URL = "http://team:hunter2@server/v1"
REMEDY = "remove the credentials, or set api_key_env to null"


def test_an_address_with_a_password_and_a_key_do_not_go_together():
    with pytest.raises(ValueError, match=REMEDY):
        OpenAIGenerator(name="g", model="m", base_url=URL)


@pytest.mark.parametrize(
    "settings",
    [
        {"base_url": URL},
        {"base_url": "http://server", "replica_urls": [URL]},
        {"base_url": "http://server", "replica_urls": [URL, URL]},
        {"base_url": [URL]},
    ],
)
def test_a_password_is_in_no_message_about_a_recipe(settings):
    generator = {"kind": "openai", "name": "g", "model": "m", **settings}
    with pytest.raises(ConfigError) as caught:
        parse_recipe({"name": "x", "task": {"name": "gsm8k"}, "generators": [generator]})
    assert "generators.0" in str(caught.value)
    assert "hunter2" not in str(caught.value)
