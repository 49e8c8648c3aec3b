"""What goes into a batch API's files and comes out of them: one JSON line per request.

In:   requests, each with its candidate id as ``custom_id``.
Out:  input files within the API's limits; of a line of a result file, whose it is and what it says.
Pure. Does not know: HTTP, where files lie.
"""

import hashlib
import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from raydebm.config import OpenAIBatchGenerator
from raydebm.generators.endpoint.chat_body import chat_body
from raydebm.generators.replies import Completion, HttpReply, ReplyError, read_reply
from raydebm.generators.requests import worst_cost
from raydebm.records import GenerationRequest, well_formed

CHAT_PATH: Final = "/v1/chat/completions"
MOST_BYTES_PER_BATCH = 200_000_000
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchInput:
    """Requests that fit into one batch, and the file that says so."""

    requests: tuple[GenerationRequest, ...]
    content: bytes
    worst_usd: float
    """What they cost at most; an endpoint without prices counts as free, as it does for ``max_usd``."""

    @property
    def digest(self) -> str:
        """The same for the same file, and written on its batch, by which it is found again."""
        return hashlib.blake2b(self.content, digest_size=16).hexdigest()


def next_input(
    requests: Iterable[GenerationRequest],
    config: OpenAIBatchGenerator,
    *,
    left_usd: float,
    most_bytes: int = MOST_BYTES_PER_BATCH,
) -> BatchInput:
    """The first requests, as many as fit into one batch, and one at least.

    Args:
        requests: at least one.
        config: the endpoint's, with the most requests of a batch.
        left_usd: what the batch may cost.
        most_bytes: size of its file.
    """
    taken: list[GenerationRequest] = []
    lines: list[bytes] = []
    num_bytes, worst_usd = 0, 0.0
    for request in requests:
        line, usd = _line_of(request, config), worst_cost(config, request) or 0.0
        too_much = num_bytes + len(line) > most_bytes or worst_usd + usd > left_usd
        if taken and (too_much or len(taken) == config.max_requests_per_batch):
            break
        taken.append(request)
        lines.append(line)
        num_bytes, worst_usd = num_bytes + len(line), worst_usd + usd
    return BatchInput(requests=tuple(taken), content=b"".join(lines), worst_usd=worst_usd)


def _line_of(request: GenerationRequest, config: OpenAIBatchGenerator) -> bytes:
    line = {
        "custom_id": request.candidate_id,
        "method": "POST",
        "url": CHAT_PATH,
        "body": chat_body(config, (request,), logprobs=config.logprobs),
    }
    return json.dumps(line, separators=(",", ":")).encode() + b"\n"


def read_result(line: bytes) -> tuple[str, Completion | ReplyError] | None:
    """(custom id, completion or why there is none) of a line of an output or error file; None where it is malformed."""
    try:
        entry = json.loads(well_formed(line.decode("utf-8", errors="surrogatepass")))
        custom_id = entry["custom_id"]
        if not isinstance(custom_id, str):
            raise TypeError(f"custom_id is {type(custom_id).__name__}")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        _LOG.warning("a line of a batch's results is ignored (%d bytes): %r", len(line), error)
        return None
    return custom_id, _outcome(entry)


def _outcome(entry: Mapping[str, object]) -> Completion | ReplyError:
    response, error = entry.get("response"), entry.get("error")
    if isinstance(response, Mapping):
        status = response.get("status_code")
        try:
            content = json.dumps(response.get("body")).encode()
            reply = HttpReply(status=status if isinstance(status, int) else 200, headers={}, content=content)
            return read_reply(reply)
        except ReplyError as failure:
            return failure
        except RecursionError:
            return ReplyError("the result is nested too deeply")
    words = (error.get("message") or error.get("code")) if isinstance(error, Mapping) else error
    reason = well_formed(str(words)) if words else "the result is empty"
    return ReplyError(f"{reason}; --retry-failed sends the request again")
