"""Frames: the lengths of header and body as two big-endian 32-bit numbers, then a JSON header and a binary body."""

import json
import os
import struct
from typing import Any

LENGTHS = struct.Struct(">II")


def read_exactly(descriptor: int, size: int) -> bytes:
    """Read ``size`` bytes. Raises EOFError if the other side closes first."""
    parts = []
    while size > 0:
        part = os.read(descriptor, min(size, 1 << 20))
        if not part:
            raise EOFError
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def read_frame(descriptor: int) -> tuple[dict[str, Any], bytes]:
    """Read a frame. Raises EOFError if the other side has closed."""
    header_size, body_size = LENGTHS.unpack(read_exactly(descriptor, LENGTHS.size))
    header = json.loads(read_exactly(descriptor, header_size))
    return header, read_exactly(descriptor, body_size)


def frame(header: dict[str, Any], body: bytes = b"") -> bytes:
    """A frame for ``read_frame``: lengths, header and body."""
    text = json.dumps(header).encode()
    return LENGTHS.pack(len(text), len(body)) + text + body


def write_all(descriptor: int, content: bytes) -> None:
    """Write all of the content, in several calls if necessary."""
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]
