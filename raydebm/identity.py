"""Content ids and seeds that are the same in every process, on every machine and in every order.

``hash(str)`` differs between processes and random state that is shared depends on order, so neither is used for
anything that is stored or resumed.
"""

import hashlib
import json

_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
"""Made once: ``json.dumps`` makes one per call, which takes as long as the text."""


def canonical_json(value: object) -> str:
    """One text per value: sorted keys, no spaces, no NaN.

    Raises:
        ValueError: for NaN or infinity, which have no portable JSON form.
        TypeError: for a value that is not JSON.
    """
    return _ENCODER.encode(value)


def content_id(*parts: object, length: int = 20) -> str:
    """Hexadecimal digest of the parts' canonical JSON; ``length`` characters (20 = 80 bits)."""
    digest = hashlib.blake2b(canonical_json(list(parts)).encode(), digest_size=32)
    return digest.hexdigest()[:length]


def share_of(*parts: object) -> float:
    """A number in [0, 1) made from the parts, by which things are dealt into shares that never change."""
    return int(content_id(*parts, length=12), 16) / 16**12


def seed_for(*parts: object) -> int:
    """A seed in [0, 2**31) made from the parts: (run_seed, problem_id, generator, pass, sample) and the like.

    31 bits because several OpenAI-compatible servers refuse larger ones.
    """
    return int(content_id("seed", *parts, length=16), 16) % 2**31
