"""What can be wrong with texts and with pools: too long, or nothing in them could be checked and scored."""

from collections.abc import Iterable, Sequence

from raydebm.errors import ServiceError
from raydebm.generators.requests import CHARS_PER_TOKEN
from raydebm.records import ScoredCandidate

NO_ENERGY = "the ensemble gave no finite energy"
NO_ANSWER = "no answer in the requested output format was found in the text"


def fault_of(judged: Sequence[ScoredCandidate]) -> ServiceError | None:
    """What does not work, where every candidate that was written could not be checked or scored. None of them is wrong
    for that, so there is nothing to abstain from."""
    reasons = [_fault(scored) for scored in judged]
    if not reasons or None in reasons:
        return None
    code = "check_failed" if judged[0].report.error is not None else "scoring_failed"
    return ServiceError(f"no candidate could be checked and scored: {reasons[0]}", 503, code, retry=False)


def _fault(scored: ScoredCandidate) -> str | None:
    if scored.report.error is not None:
        return scored.report.error
    return NO_ENERGY if scored.energies is None else None


def check_tokens(num_chars: int, most: int, param: str = "candidates") -> None:
    """Raises ServiceError 413 for texts that have more than ``most`` tokens together, estimated from their length."""
    num_tokens = num_chars // CHARS_PER_TOKEN
    if num_tokens > most:
        message = (
            f"the texts to score, each with its problem, are about {num_tokens} tokens; at most {most} are "
            "accepted in one request, so send them in several"
        )
        raise ServiceError(message, 413, "too_many_tokens", param)


def check_lengths(texts: Iterable[str], param: str, limit: int) -> None:
    """Raises ServiceError 413 for a text that is too long."""
    longest = max((len(text) for text in texts), default=0)
    if longest > limit:
        message = f"a text has {longest} characters; at most {limit} are accepted"
        raise ServiceError(message, 413, "text_too_long", param)
