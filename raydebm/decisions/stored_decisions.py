"""Stored decisions as ``triage.redecide`` takes them, many at a time.

Only the columns that a decision rests on are read and turned into records. It rests on all that a term of evidence may
measure of a candidate: its text (``length``), its log-probabilities, and for terms that users add what else its
generator said of it. Problems are read only when texts are to be scored again. A decision's sentence of reasons lacks
the words of violations, which are not read.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pyarrow as pa

from raydebm.decision.policy import Policy
from raydebm.decision.redecide import Recorded
from raydebm.decisions.reader import DecisionReader, Filter
from raydebm.decisions.record import scores_of
from raydebm.decisions.storage.damage import NO_DECISION, note_left_out
from raydebm.records import Candidate, ConstraintReport, Decision, Energies, PassStop, ScoredCandidate

_ROW = ("record_id", "task", "problem_id", "decision", "selected", "policy_json")
_CANDIDATE = (
    "candidate_id", "generator", "error", "pass_index", "sample_index", "text", "answer", "vote_key", "penalty",
    "check_error", "proof",
)  # fmt: skip
_SAID = (
    "reasoning", "finish_reason", "prompt_tokens", "completion_tokens", "cost_usd", "latency_s", "logprob",
    "worst_logprob",
)  # fmt: skip
"""What a candidate's generator said of it, as ``Candidate`` names it; files of earlier versions lack some of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A stored decision that can be replayed, with what a comparison needs."""

    recorded: Recorded
    task: str
    prompt: str | None
    """What the ensemble read as the problem; None unless prompts were asked for."""


def stored_decisions(
    reader: DecisionReader, where: Filter | None = None, *, prompts: bool = False, batch_size: int = 256
) -> Iterator[Stored]:
    """Every decision that passes and can be read.

    Args:
        reader: the folder.
        where: which decisions.
        prompts: read what the ensemble read as the problems, too.
        batch_size: decisions in memory at a time.
    """
    policies: dict[str, Policy] = {}
    names = [*_CANDIDATE, *_SAID, "members", "scores_json"]
    columns = [*_ROW, *(("prompt", "scored_prompt") if prompts else ())]
    columns += [f"passes.list.element.{name}" for name in ("selected", "stop")]
    columns += [f"candidates.list.element.{name}" for name in names]
    for batch in reader.batches(columns, where, batch_size=batch_size):
        yield from _readable(batch, policies, with_prompts=prompts)


def _readable(batch: pa.RecordBatch, policies: dict[str, Policy], *, with_prompts: bool) -> list[Stored]:
    """A batch without its damaged decisions, for which it is read again row by row."""
    try:
        return list(_batch(batch, policies, with_prompts=with_prompts))
    except NO_DECISION as error:
        if batch.num_rows == 1:
            note_left_out(error)
            return []
    rows = (batch.slice(place, 1) for place in range(batch.num_rows))
    return [stored for row in rows for stored in _readable(row, policies, with_prompts=with_prompts)]


def _batch(batch: pa.RecordBatch, policies: dict[str, Policy], *, with_prompts: bool) -> Iterator[Stored]:
    rows = {name: batch.column(name).to_pylist() for name in _ROW}
    prompts = _prompts(batch) if with_prompts else [None] * batch.num_rows
    selections = _lists(batch.column("passes"), lambda structs: structs.field("selected").to_pylist())
    stops = _lists(batch.column("passes"), _stops)
    pools = _lists(batch.column("candidates"), _scored)
    for place, record_id in enumerate(rows["record_id"]):
        text = rows["policy_json"][place]
        policy = policies.get(text)
        if policy is None:
            policy = policies[text] = Policy.from_json(json.loads(text))
        recorded = Recorded(
            record_id=record_id,
            problem_id=rows["problem_id"][place],
            policy=policy,
            decision=Decision(rows["decision"][place]),
            selected=rows["selected"][place],
            selections=tuple(selections[place]),
            pool=pools[place],
            stops=tuple(stops[place]) if any(stops[place]) else (),
        )
        yield Stored(recorded=recorded, task=rows["task"][place], prompt=prompts[place])


def _stops(structs: pa.StructArray) -> list[PassStop | None]:
    return [None if stop is None else PassStop(**stop) for stop in _optional(structs, "stop")]


def _prompts(batch: pa.RecordBatch) -> list[str | None]:
    prompts, others = batch.column("prompt").to_pylist(), batch.column("scored_prompt").to_pylist()
    return [prompt if other is None else other for prompt, other in zip(prompts, others, strict=True)]


def _lists(column: pa.ListArray, read: Any) -> list[list[Any]]:
    """Read all elements of a list column at once, then cut them by row."""
    offsets = column.offsets.to_pylist()
    first = offsets[0]
    elements = read(column.values.slice(first, offsets[-1] - first))
    return [elements[start - first : end - first] for start, end in pairwise(offsets)]


def _scored(structs: pa.StructArray) -> list[ScoredCandidate]:
    columns = {name: structs.field(name).to_pylist() for name in _CANDIDATE}
    said = {name: _optional(structs, name) for name in _SAID}
    members = structs.field("members")
    energies = _lists(members, lambda values: values.to_numpy(zero_copy_only=False).tolist())
    is_scored = members.is_valid().to_pylist()
    scores = _optional(structs, "scores_json")
    candidates = []
    for place, candidate_id in enumerate(columns["candidate_id"]):
        candidate = Candidate(
            candidate_id=candidate_id,
            task="",
            problem_id="",
            generator=columns["generator"][place],
            text=columns["text"][place],
            error=columns["error"][place],
            pass_index=columns["pass_index"][place],
            sample_index=columns["sample_index"][place],
            **{name: values[place] for name, values in said.items()},
        )
        report = ConstraintReport(
            candidate_id=candidate_id,
            answer=columns["answer"][place],
            vote_key=columns["vote_key"][place],
            penalty=columns["penalty"][place],
            error=columns["check_error"][place],
            proof=columns["proof"][place],
        )
        scored = Energies(candidate_id=candidate_id, members=tuple(energies[place])) if is_scored[place] else None
        candidates.append(
            ScoredCandidate(candidate=candidate, report=report, energies=scored, scores=scores_of(scores[place]))
        )
    return candidates


def _optional(structs: pa.StructArray, name: str) -> list[Any]:
    """A column that files of earlier versions lack."""
    return [None] * len(structs) if structs.type.get_field_index(name) < 0 else structs.field(name).to_pylist()
