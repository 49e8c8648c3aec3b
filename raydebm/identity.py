"""Content ids and seeds: the same in every process, on every machine and in every order.

Values that are stored or resumed do not depend on ``hash(str)``, which differs between processes, or on a shared random
state, which depends on the order of calls.
"""

import hashlib
import json

_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
"""Shared, because ``json.dumps`` builds an encoder per call, which takes as long as encoding the text."""


def canonical_json(value: object) -> str:
    """Canonical JSON text of a value: sorted keys, no spaces, no NaN.

    Raises:
        ValueError: the value contains NaN or infinity.
        TypeError: the value is not JSON.
    """
    return _ENCODER.encode(value)


def content_id(*parts: object, length: int = 20) -> str:
    """Hexadecimal digest of the parts' canonical JSON; ``length`` characters (20 = 80 bits)."""
    digest = hashlib.blake2b(canonical_json(list(parts)).encode(), digest_size=32)
    return digest.hexdigest()[:length]


def text_key(prompt: str) -> str:
    """Key shared by equal problems: the text with case and whitespace normalised."""
    return " ".join(prompt.split()).casefold()


def seed_for(*parts: object) -> int:
    """A seed in [0, 2**31) from the parts, such as (run_seed, problem_id, generator, pass, sample).

    31 bits because several OpenAI-compatible servers refuse larger seeds.
    """
    return int(content_id("seed", *parts, length=16), 16) % 2**31
