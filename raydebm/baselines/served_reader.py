"""A causal language model behind an endpoint as a reader: log-probabilities of an answer's tokens.

In:   pools, and an OpenAI-compatible endpoint whose completions return the log-probabilities of the prompt (``echo``
      with ``logprobs``): a vLLM server, or llama-cpp-python's.
Out:  the mean log-probability of each answer's tokens, and ``worst``, the mean of the least likely tenth.
Does not know: torch, labels, energies, the author of an answer.

The prompt is the problem, a newline and the answer, as in ``baselines.causal_reader``. An endpoint returns the
log-probabilities of only a few alternatives, so the entropy is unknown. Requests, retries and pauses are those of the
official client. They have no limit in US dollars.
"""

import asyncio
import re
import threading
import weakref
from collections.abc import Sequence
from typing import Any

import openai

from raydebm.baselines.protocol import PoolTexts, TextScore, flattened, regrouped
from raydebm.baselines.readings import Reading
from raydebm.config import ServedReaderBaseline, VllmGenerator
from raydebm.generators.endpoint.api_keys import Secret, key_of, without_secrets
from raydebm.generators.endpoint.official_client import official_client
from raydebm.generators.endpoint.vllm import endpoint_of

BETWEEN = "\n"
PART = "\ufffd"
"""Text that servers return for a token, or the end of one, with only a part of a character."""
REMEDY = (
    "the endpoint must take `echo` and `logprobs` in /completions, as vLLM does; or use a local model (kind: reader)"
)


def _close(runner: asyncio.Runner) -> None:
    """Close the runner in a separate thread: the garbage collector may call this while another event loop runs."""
    thread = threading.Thread(target=runner.close)
    thread.start()
    thread.join()


class ServedReader:
    """Reader behind an endpoint. Call it from a thread without a running event loop."""

    def __init__(self, config: ServedReaderBaseline, *, key: Secret | None = None) -> None:
        """Build the client.

        Args:
            key: Key of the endpoint. Default: read from the environment.

        Raises:
            MissingKeyError: the endpoint's key is not in the environment.
        """
        self.name = config.name
        generator = config.generator
        self._endpoint = endpoint_of(generator) if isinstance(generator, VllmGenerator) else generator
        self._key = key if key is not None else key_of(self._endpoint)
        # One event loop for all calls: the client's connections are bound to the loop that opened them.
        self._runner = asyncio.Runner()
        weakref.finalize(self, _close, self._runner)

    def score(self, pools: Sequence[PoolTexts]) -> list[list[TextScore]]:
        return regrouped(pools, [reading.score() for reading in self.read(flattened(pools))])

    def read(self, texts: Sequence[tuple[str, str]]) -> list[Reading]:
        """One reading per (problem, answer), in order. An answer that could not be read has an error."""
        return self._runner.run(self._read_all(texts))

    async def _read_all(self, texts: Sequence[tuple[str, str]]) -> list[Reading]:
        slots = asyncio.Semaphore(self._endpoint.max_in_flight)
        async with official_client(
            self._endpoint.base_url,
            api_key=self._key.value,
            headers=self._endpoint.headers,
            timeout_s=self._endpoint.timeout_s,
            max_retries=self._endpoint.max_retries,
        ) as client:
            return list(await asyncio.gather(*(self._read(client, slots, *text) for text in texts)))

    async def _read(self, client: openai.AsyncOpenAI, slots: asyncio.Semaphore, problem: str, answer: str) -> Reading:
        before = problem + BETWEEN
        try:
            async with slots:
                completion = await client.completions.create(
                    model=self._endpoint.model,
                    prompt=before + answer,
                    echo=True,
                    logprobs=1,
                    max_tokens=1,  # servers refuse 0; the new token is ignored
                    temperature=0.0,
                    extra_body=self._endpoint.extra_body,
                )
        except openai.OpenAIError as error:
            return self._failed(_explained(error))
        try:
            log_probs = _answer_log_probs(completion, before + answer, start=len(before))
        except ValueError as error:
            return self._failed(f"{error}; use a local model (kind: reader)")
        if not log_probs:
            return self._failed(f"the reply has no log-probabilities of the answer's tokens; {REMEDY}")
        return Reading.of(log_probs, None)

    def _failed(self, reason: str) -> Reading:
        text = f"{self._endpoint.base_url}: {reason}"
        return Reading.failed(without_secrets(text, self._endpoint, self._key.value))


def _explained(error: openai.OpenAIError) -> str:
    if isinstance(error, openai.BadRequestError):
        return f"{error} ({REMEDY})"
    cause = str(error.__cause__ or "") if isinstance(error, openai.APIConnectionError) else ""
    return f"{error} ({cause})" if cause else str(error)  # a refused connection is a timeout to the client


def _answer_log_probs(completion: Any, prompt: str, *, start: int) -> list[float]:
    """Log-probabilities of the tokens that begin in the answer. Empty if the reply has none.

    Positions of tokens are found in the prompt itself, because servers include in ``text_offset`` text that is not in
    the prompt: a token at the beginning of every text, and several U+FFFD for the parts of one character.

    Args:
        completion: An ``openai.types.Completion``, or a server's replacement for it.
        start: Start of the answer in the prompt, in characters, after ``BETWEEN``.

    Raises:
        ValueError: the tokens do not concatenate to the prompt.
    """
    choices = getattr(completion, "choices", None)
    logprobs = choices[0].logprobs if choices else None
    tokens, values = getattr(logprobs, "tokens", None), getattr(logprobs, "token_logprobs", None)
    if not tokens or not values or len(tokens) != len(values):
        return []
    # With or without the sampled token, and with or without a token at the beginning of every text.
    for first, last in ((0, -1), (1, -1), (0, None), (1, None)):
        begins = _places(tokens[first:last], prompt)
        if begins is not None:
            known = zip(begins, values[first:last], strict=True)
            # the very first token has no prediction
            return [float(value) for begin, value in known if value is not None and begin >= start]
    raise ValueError("its tokens do not add up to the prompt, so which are the answer's is not known")


def _places(tokens: Sequence[str], prompt: str) -> list[int] | None:
    """Start of each token in the prompt. None if they do not concatenate to it.

    A part of a character is U+FFFD or empty and may represent up to one non-ASCII character, so positions are known
    only up to a range; the lowest is returned. Some servers omit a token's first blank.
    """
    low = high = 0
    begins = []
    for token in tokens:
        begins.append(low)
        if not token.strip(PART):
            furthest = min(high + max(len(token), 1), len(prompt))
            while high < furthest and not prompt[high].isascii():
                high += 1
            continue
        ends = [end for place in range(low, high + 1) if (end := _end(token, prompt, place)) is not None]
        if not ends:
            return None
        low, high = min(ends), max(ends)
    return begins if low <= len(prompt) <= high else None


def _end(token: str, prompt: str, place: int) -> int | None:
    """End of a token that begins at ``place``. None if it does not match."""
    if prompt.startswith(token, place):
        return place + len(token)
    parts = re.findall(f"{PART}+|[^{PART}]+", token)
    pattern = "".join(f"[^\\x00-\\x7f]{{0,{len(part)}}}" if part[0] == PART else re.escape(part) for part in parts)
    found = re.compile(" ??" + pattern).match(prompt, place)
    return None if found is None else found.end()
