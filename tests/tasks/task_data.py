"""Files of rows, labels of texts, and our verdicts on recorded answers."""

import gzip
import json
import time
from contextlib import contextmanager
from dataclasses import replace

from raydebm.records import Candidate, Verdict
from raydebm.tasks.labels import label_candidate
from raydebm.tasks.sandbox import Limits
from raydebm.user_files import read_json_lines

MIB = 1 << 20
PATIENT = Limits(cpu_s=20.0, wall_s=60.0, memory_bytes=256 * MIB, output_bytes=64 * 1024, disk_bytes=MIB, num_threads=8)
"""Small, except for time: a program that ends by itself does so on any machine."""
HASTY = replace(PATIENT, cpu_s=0.4, wall_s=2.0)
"""For programs that never end."""


def write(path, *rows):
    """A file of JSON lines, with gzip if its name says so."""
    content = "".join(json.dumps(row) + "\n" for row in rows).encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return str(path)


@contextmanager
def cpu_within(seconds):
    """The block takes this thread less than so many seconds of CPU time."""
    started = time.thread_time()
    yield
    assert time.thread_time() - started < seconds


def read(path):
    return [row for _, row in read_json_lines(str(path))]


def label(task, problem, gold, text):
    candidate = Candidate(candidate_id="c", task=task.name, problem_id=problem.problem_id, generator="g", text=text)
    return label_candidate(task, problem, gold, candidate)


def known_pairs(task, source):
    """(problem, gold) by the source's own id."""
    return {problem.data["source_id"]: (problem, gold) for problem, gold in task.load("test", source=str(source))}


def relabelled(task, problems, rows):
    """(row, our verdict) of recorded answers."""
    known = known_pairs(task, problems)
    return [(row, task.judge(*known[row["problem_id"]], row["text"] or "").verdict) for row in rows]


def differing(labelled):
    """Those of ``relabelled`` on which our verdict is not the recorded one."""
    return [(row, verdict) for row, verdict in labelled if (verdict is Verdict.CORRECT) != row["correct"]]
