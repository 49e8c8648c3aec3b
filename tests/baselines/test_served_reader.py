"""A reader behind an endpoint, against a real HTTP server that echoes prompts as vLLM does.

Its offsets are vLLM's: the lengths of the tokens before, with one that begins every text and with U+FFFD for parts of a
character.
"""

import base64
import http.server
import json
import re
import threading
from collections import Counter
from functools import partial

import pytest

from raydebm.baselines import build_scorer
from raydebm.config import ServedReaderBaseline
from raydebm.errors import ConfigError, MissingKeyError
from raydebm.generators import replies

LOG_PROBS = {"likely": -0.5, "unlikely": -4.0}


def echoed(prompt, *, first=(), part="\ufffd"):
    """As vLLM: words are tokens, the bytes of other letters than ASCII too; the first has no log-probability, and one
    written token stands behind the prompt.

    Args:
        first: a token that begins every text.
        part: what stands for a part of a character.
    """
    tokens = list(first)
    for match in re.finditer(r"(?:\A\s)?[!-~]+\s*|\s+|[^\x00-\x7f]", prompt):
        text = match.group()
        tokens += [text] if text.isascii() else [part] * len(text.encode())
    return {
        "tokens": [*tokens, "!"],
        "text_offset": [sum(map(len, tokens[:index])) for index in range(len(tokens) + 1)],
        "token_logprobs": [None, *(LOG_PROBS.get(token.strip(), -1.0) for token in tokens[1:]), -9.0],
        "top_logprobs": None,
    }


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        server = self.server
        server.bodies.append(body)
        server.keys.append(self.headers.get("Authorization"))
        prompt = body["prompt"]
        server.attempts[prompt] += 1
        if "refused" in prompt:
            self._answer(400, {"error": {"message": f"echo is not supported (key {self.headers['Authorization']})"}})
        elif "busy" in prompt and server.attempts[prompt] == 1:
            self._answer(503, {"error": {"message": "overloaded"}})
        else:
            logprobs = None if "silent" in prompt else server.echoed(prompt)
            choice = {"index": 0, "text": prompt + "!", "finish_reason": "length", "logprobs": logprobs}
            self._answer(200, {"id": "c", "object": "text_completion", "created": 0, "model": "m", "choices": [choice]})

    def _answer(self, status, value):
        content = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *arguments):
        """Nothing."""


@pytest.fixture
def server():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        running.bodies, running.keys, running.attempts, running.echoed = [], [], Counter(), echoed
        running.url = f"http://127.0.0.1:{running.server_port}/v1"
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield running
        running.shutdown()


def reader(server, **more):
    generator = {"kind": "openai", "name": "m", "model": "m", "base_url": server.url, "api_key_env": None} | more
    return build_scorer(ServedReaderBaseline(name="served", generator=generator))


def test_the_score_is_the_mean_log_probability_of_the_answers_tokens(server, pool):
    [[score]] = reader(server).score([pool("p", "likely words unlikely", prompt="unlikely unlikely problem")])

    assert score.value == pytest.approx((-0.5 - 1.0 - 4.0) / 3)
    assert score.parts == {"worst": -4.0}


def test_a_token_that_begins_every_text_is_none_of_the_answers(server):
    server.echoed = partial(echoed, first=["<|begin_of_text|>"])
    [reading] = reader(server).read([("a problem", "likely words unlikely")])

    assert (reading.logprob, reading.num_tokens) == (pytest.approx((-0.5 - 1.0 - 4.0) / 3), 3)


@pytest.mark.parametrize("part", ["\ufffd", ""])
def test_letters_of_several_bytes_in_the_problem_move_no_token(server, part):
    server.echoed = partial(echoed, part=part)
    [reading] = reader(server).read([("unlikely 2π ≤ 7, is it? — 日本", "likely likely")])

    assert (reading.logprob, reading.num_tokens) == (-0.5, 2)


def test_every_part_of_a_letter_of_the_answer_is_measured(server):
    server.echoed = partial(echoed, first=["<s>"])
    [reading] = reader(server).read([("≤ problem", "≤ likely")])

    assert (reading.logprob, reading.num_tokens) == (pytest.approx((-1.0 - 1.0 - 1.0 - 1.0 - 0.5) / 5), 5)


def test_a_token_without_its_blank_stands_in_the_prompt(server):
    def without_blanks(prompt):
        said = echoed(prompt)
        return said | {"tokens": [token.strip(" ") for token in said["tokens"]]}

    server.echoed = without_blanks
    [reading] = reader(server).read([("the problem", "likely unlikely")])

    assert (reading.logprob, reading.num_tokens) == (-2.25, 2)


def test_tokens_of_another_text_are_an_error_that_says_so(server):
    server.echoed = lambda prompt: echoed(prompt.upper())
    [reading] = reader(server).read([("the problem", "likely")])

    assert "its tokens do not add up to the prompt, so which are the answer's is not known" in reading.error


def test_what_the_endpoint_is_asked(server, pool):
    reader(server, extra_body={"add_special_tokens": False}).score([pool("p", "likely", prompt="problem")])
    [body] = server.bodies

    assert body == {
        "model": "m", "prompt": "problem\nlikely", "echo": True, "logprobs": 1, "max_tokens": 1, "temperature": 0.0,
        "add_special_tokens": False,
    }  # fmt: skip


def test_an_answer_that_is_the_whole_prompt_leaves_its_first_token_out(server):
    [reading] = reader(server).read([("", "likely unlikely")])

    assert (reading.logprob, reading.num_tokens) == (-4.0, 1)


def test_scores_stand_in_the_order_of_the_texts(server, pool):
    scores = reader(server, max_in_flight=2).score([pool("p", "likely", "unlikely"), pool("q", "word")])

    assert [[score.value for score in row] for row in scores] == [[-0.5, -4.0], [-1.0]]


def test_a_busy_endpoint_is_asked_again(server, pool):
    [[score]] = reader(server).score([pool("p", "busy")])

    assert score.value == -1.0
    assert server.attempts["w1 w2 w3\nbusy"] == 2


def test_a_refusal_is_the_error_of_its_row_and_names_the_remedy(server, pool, monkeypatch):
    monkeypatch.setenv("SERVED_KEY", "sk-secret")
    [[refused, read]] = reader(server, api_key_env="SERVED_KEY").score([pool("p", "refused", "likely")])

    assert "echo is not supported" in refused.error
    assert "or use a local model (kind: reader)" in refused.error
    assert "sk-secret" not in refused.error
    assert read.value == -0.5
    assert set(server.keys) == {"Bearer sk-secret"}


def test_a_reply_without_log_probabilities_is_an_error(server, pool):
    [[score]] = reader(server).score([pool("p", "silent")])

    assert score.value is None
    assert "no log-probabilities of the answer's tokens; the endpoint must take `echo`" in score.error


def test_an_endpoint_that_does_not_answer_is_an_error(server, pool):
    closed = reader(server, base_url="http://127.0.0.1:9/v1", max_retries=0)
    [[score]] = closed.score([pool("p", "likely")])

    assert score.value is None
    assert score.error.startswith("http://127.0.0.1:9/v1: ")
    assert "Cannot connect to host 127.0.0.1:9" in score.error


def test_the_user_and_password_of_an_address_are_sent_as_such(server, pool):
    url = server.url.replace("//", "//team:hunter2@")
    [[score]] = reader(server, base_url=url).score([pool("p", "likely")])

    assert score.value == -0.5
    assert server.keys == ["Basic " + base64.b64encode(b"team:hunter2").decode()]


@pytest.mark.parametrize("answer", ["refused", "silent"])
def test_a_password_in_the_address_is_in_no_error(server, pool, answer):
    url = server.url.replace("//", "//team:hunter2@")
    [[score]] = reader(server, base_url=url).score([pool("p", answer)])

    assert score.error.startswith("http://***@127.0.0.1")
    assert "hunter2" not in score.error
    assert base64.b64encode(b"team:hunter2").decode() not in score.error


def test_a_reply_that_is_too_long_is_the_error_of_its_row(server, pool, monkeypatch):
    monkeypatch.setattr(replies, "MAX_REPLY_BYTES", 1000)
    [[score]] = reader(server).score([pool("p", "word " * 300)])

    assert "the reply is longer than 1000 bytes" in score.error
    assert len(server.bodies) == 1


def test_two_calls_share_a_reader(server, pool):
    scorer = reader(server)

    assert [scorer.score([pool("p", "likely")])[0][0].value for _ in range(2)] == [-0.5, -0.5]


def test_a_missing_key_is_found_when_it_is_built(server):
    with pytest.raises(MissingKeyError, match="ABSENT_KEY"):
        reader(server, api_key_env="ABSENT_KEY")


def test_a_vllm_server_needs_its_url():
    generator = {"kind": "vllm", "name": "g", "model": "m"}
    with pytest.raises((ConfigError, ValueError), match="give 'g' the `url` of one that is running"):
        ServedReaderBaseline(name="served", generator=generator)
