"""JSON-lines files, plain or gzip, with line numbers for messages."""

import json
from collections.abc import Iterator

import pyarrow as pa

from raydebm.errors import TaskDataError
from raydebm.run.codec import Row


def read_json_lines(path: str) -> Iterator[tuple[int, Row]]:
    """(line number, object) of a JSON-lines file, plain or gzip.

    Raises:
        TaskDataError: the file is missing, or a line is not a JSON object; the message names file and line.
    """
    try:
        with pa.input_stream(path, compression="detect") as stream:
            content = stream.read().decode("utf-8")
    except FileNotFoundError as error:
        raise TaskDataError(f"file {path!r} does not exist") from error
    except (OSError, UnicodeDecodeError) as error:
        raise TaskDataError(f"file {path!r} cannot be read as text: {error}") from error
    for number, line in enumerate(content.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:  # also numbers of thousands of digits, and levels of brackets
            raise TaskDataError(f"{path}:{number}: not JSON: {error}") from error
        if not isinstance(row, dict):
            raise TaskDataError(f"{path}:{number}: must be a JSON object, got {type(row).__name__}")
        yield number, row
