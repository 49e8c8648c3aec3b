"""Frames: the lengths of header and body as two big-endian 32-bit numbers, a JSON header, and bytes."""

import json
import os
import struct
from typing import Any

LENGTHS = struct.Struct(">II")


def read_exactly(descriptor: int, size: int) -> bytes:
    """Exactly so many bytes; EOFError where the other side has closed before."""
    parts = []
    while size > 0:
        part = os.read(descriptor, min(size, 1 << 20))
        if not part:
            raise EOFError
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def read_frame(descriptor: int) -> tuple[dict[str, Any], bytes]:
    """Raises EOFError when the other side is gone."""
    header_size, body_size = LENGTHS.unpack(read_exactly(descriptor, LENGTHS.size))
    header = json.loads(read_exactly(descriptor, header_size))
    return header, read_exactly(descriptor, body_size)


def frame(header: dict[str, Any], body: bytes = b"") -> bytes:
    """A header and a body with their lengths before them, as ``read_frame`` reads them."""
    text = json.dumps(header).encode()
    return LENGTHS.pack(len(text), len(body)) + text + body


def write_all(descriptor: int, content: bytes) -> None:
    """Write everything, however many calls that takes."""
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]
