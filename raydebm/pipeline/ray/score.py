"""Energies of all candidates: on GPUs with Ray Data actors that load the ensemble once, on CPUs in tasks. All workers
of a node share the backbone's weights.

In:   problems, candidates, a checkpoint.
Out:  ``<run>/<stage>/energies.parquet``, one row per candidate, in their order. A candidate without text or with a NaN
      energy is a row with ``error``.

Candidates are read in windows of whole problems, which bounds memory. Equal texts of a problem in a window are scored
once. Texts are sorted by length within a window, longest first, so that batches need little padding and no long batch
is last.
"""

import contextlib
import math
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, groupby
from pathlib import Path
from typing import Any, NamedTuple, cast

import pyarrow as pa
import pyarrow.compute as pc
import ray
import ray.data
from ray.exceptions import ActorDiedError

from raydebm.config import Recipe
from raydebm.errors import CheckpointError, last_line
from raydebm.pipeline.ray.label import require_problems
from raydebm.pipeline.ray.placement import WorkerShare, cluster_nodes, share_of, workers_for
from raydebm.pipeline.ray.pooled import in_tables, map_in_tasks
from raydebm.pipeline.ray.session import get_or_raise
from raydebm.records import Candidate, Problem, Reasoning
from raydebm.run.addresses import local_copy, resolved
from raydebm.run.codec import Row
from raydebm.run.directory import RunDir
from raydebm.run.folder import Many
from raydebm.run.spool import POSITION, PlacedRows, Spool, read_slices, slice_rows, with_position
from raydebm.run.tables import ENERGIES, EnergyRow, KnownEnergies
from raydebm.scorer.texts import score_texts


class Text(NamedTuple):
    """A distinct text to score."""

    prompt: str
    text: str
    members: tuple[bool, ...]
    """True for each adapter that scores the text; empty for all adapters."""


BATCH_SIZE = 128
TEXTS_PER_WORKER = 64
"""Below this number a second worker costs more to start than it saves."""
BATCHES_PER_WORKER = 4
"""Batches per worker for few texts, so that all workers are busy and end together."""
WINDOW_ROWS = 8192
WINDOW_CHARS = 2**25
"""Candidates, and characters of their texts, after which a window ends with the current problem."""
DTYPE = "dtype"

_ID = "candidate_id"
_CANDIDATES = pa.list_(pa.struct([(POSITION, pa.int64()), (_ID, pa.string())]))
_INPUT = pa.schema(
    [("prompt", pa.string()), ("text", pa.string()), ("members", pa.list_(pa.bool_())), ("candidates", _CANDIDATES)]
)
_NUM_ERRORS = 3
_SCORED = ENERGIES.schema.append(pa.field(DTYPE, pa.string()))
_OUTPUT = with_position(_SCORED)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreSummary:
    """Counts of scored candidates."""

    num_candidates: int
    num_failed: int
    num_truncated: int
    """Candidates whose problem or text was truncated to fit the context."""
    num_texts: int
    """Distinct texts scored."""
    dtype: str
    """Dtype of the encoder; with ``scorer.dtype: auto`` the chosen one, or auto if there was nothing to score."""
    errors: tuple[str, ...]
    """The first three errors."""

    def facts(self) -> dict[str, Any]:
        """JSON values for a manifest."""
        return {
            "candidates": self.num_candidates,
            "failed": self.num_failed,
            "truncated": self.num_truncated,
            "texts": self.num_texts,
            "dtype": self.dtype,
            "errors": list(self.errors),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoringInput:
    """Candidates to score."""

    problems: Mapping[str, Problem]
    """Problems by problem id."""
    candidates: Many[Candidate]
    """Candidates, those of a problem one after the other; else equal texts of a problem may be scored twice."""
    members: Mapping[str, Sequence[bool]] = field(default_factory=dict)
    """By problem id, True for each adapter that scores its candidates; the other energies are null. Default: all."""
    known: KnownEnergies | None = None
    """Energies of candidates that need no scoring."""

    def text_of(self, candidate: Candidate) -> Text:
        """The text to score for a candidate."""
        prompt, members = self.problems[candidate.problem_id].prompt, self.members.get(candidate.problem_id, ())
        return Text(prompt, candidate.text or "", tuple(members))


def score(
    given: ScoringInput,
    *,
    checkpoint: str,
    recipe: Recipe,
    run: RunDir,
    stage: str = "energies",
    on_progress: Callable[[int, int], None] | None = None,
) -> ScoreSummary:
    """Score every candidate in the form of ``scorer.reasoning``. Ray must be initialised.

    Args:
        checkpoint: the ensemble's folder or URL, readable on every node.
        on_progress: called with (candidates done, candidates).

    Raises:
        CheckpointError: the checkpoint is missing, torn or mixed, or was trained with another ``scorer.reasoning``.
        PoolError: a candidate names an unknown problem.
        ResourceError: no node can hold a scorer, and ``ray.max_workers`` does not ask for one.
    """
    total = len(given.candidates)
    with tempfile.TemporaryDirectory(prefix="raydebm-") as folder:
        rows = PlacedRows(Path(folder), _SCORED)
        texts = _DistinctTexts(given, recipe.scorer.reasoning, rows)
        windows = iter(texts)
        if first := next(windows, None):
            dtype = given.known.dtype if given.known else run.scoring_type(recipe.scorer.dtype)
            source = _read(resolved(checkpoint), recipe, dtype)
            num_texts = len(first) if total <= WINDOW_ROWS else total
            for scored in _scored(chain([first], windows), source, recipe, spool_at=(run, stage), num_texts=num_texts):
                rows.add(scored)
                if on_progress is not None:
                    on_progress(rows.num_rows, total)
        return _written(rows, recipe, run, stage, num_texts=texts.num_texts)


class _DistinctTexts:
    """Distinct texts of the candidates, window by window, as columns of ``_INPUT``. The rows of candidates that need no
    scoring are added to ``rows``."""

    def __init__(self, given: ScoringInput, reasoning: Reasoning, rows: PlacedRows) -> None:
        self.num_texts = 0
        self._given, self._reasoning, self._rows = given, reasoning, rows

    def __iter__(self) -> Iterator[list[Row]]:
        """Texts by set of adapters, those with few adapters last, longest first within each set."""
        as_scored = (candidate.as_scored(self._reasoning) for candidate in self._given.candidates)
        for window in in_windows(enumerate(as_scored)):
            require_problems(self._given.problems, {candidate.problem_id for _, candidate in window})
            rows = [self._row_without_scoring(*placed) for placed in window]
            if ready := [row for row in rows if row is not None]:
                self._rows.add(pa.Table.from_pylist(ready, schema=_OUTPUT))
            if texts := self._distinct([placed for placed, row in zip(window, rows, strict=True) if row is None]):
                self.num_texts += len(texts)
                yield texts

    def _row_without_scoring(self, position: int, candidate: Candidate) -> Row | None:
        """The row of a candidate that needs no scoring, else None."""
        if candidate.text is None:
            return _unscored(position, candidate)
        known = self._given.known
        if known is None or (row := known.rows.get(candidate.candidate_id)) is None:
            return None
        energies = row.of_members(self._given.text_of(candidate).members)
        return ENERGIES.row(energies) | {POSITION: position, DTYPE: known.dtype}

    def _distinct(self, window: Sequence["_PlacedCandidate"]) -> list[Row]:
        candidates: dict[Text, list[Row]] = {}
        for position, candidate in window:
            named = {POSITION: position, _ID: candidate.candidate_id}
            candidates.setdefault(self._given.text_of(candidate), []).append(named)
        ordered = sorted(
            candidates, key=lambda text: (sum(text.members), text.members, -len(text.prompt + text.text), text)
        )
        return [text._asdict() | {"candidates": candidates[text]} for text in ordered]


_PlacedCandidate = tuple[int, Candidate]


def in_windows(placed: Iterator[_PlacedCandidate]) -> Iterator[list[_PlacedCandidate]]:
    """Candidates with their positions, in lists of whole problems if the candidates are grouped by problem."""
    window: list[_PlacedCandidate] = []
    chars = 0
    for _, same in groupby(placed, key=lambda placed_candidate: placed_candidate[1].problem_id):
        for placed_candidate in same:
            window.append(placed_candidate)
            chars += len(placed_candidate[1].text or "")
        if len(window) >= WINDOW_ROWS or chars >= WINDOW_CHARS:
            yield window
            window, chars = [], 0
    if window:
        yield window


def _unscored(position: int, candidate: Candidate) -> Row:
    error = f"no text to score: {candidate.error}"
    row = ENERGIES.row(EnergyRow(candidate_id=candidate.candidate_id, members=None, error=error))
    return row | {POSITION: position, DTYPE: None}


def _written(rows: PlacedRows, recipe: Recipe, run: RunDir, stage: str, *, num_texts: int) -> ScoreSummary:
    """Write the table, and count its rows."""
    errors: dict[str, None] = {}
    num_failed = num_truncated = 0
    dtype: str | None = None
    with run.open_table(ENERGIES, stage, "energies.parquet") as energies:
        for table in rows.tables():
            energies.write(table)
            failed = table["error"].drop_null()
            num_failed += len(failed)
            num_truncated += pc.sum(pc.greater(table["num_truncated"], 0), min_count=0).as_py()
            errors |= dict.fromkeys(failed.unique().to_pylist() if len(errors) < _NUM_ERRORS else ())
            dtype = dtype or next(iter(table[DTYPE].drop_null().unique().to_pylist()), None)
    return ScoreSummary(
        num_candidates=energies.num_rows,
        num_failed=num_failed,
        num_truncated=num_truncated,
        num_texts=num_texts,
        dtype=dtype or run.scoring_type(recipe.scorer.dtype),
        errors=tuple(errors)[:_NUM_ERRORS],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
    """Checkpoint, weights and resources of all scorers of a stage."""

    checkpoint: str
    weights: Any
    """Reference to the backbone's weights."""
    dtype: str
    device: str
    share: WorkerShare
    """Resources of one scorer."""


def _read(checkpoint: str, recipe: Recipe, dtype: str) -> _Source:
    """Read the checkpoint on the cluster, and choose one dtype for all scorers.

    Raises:
        CheckpointError, ResourceError: see ``score``.
    """
    share = share_of(recipe.ray, cluster_nodes(), device=recipe.scorer.device)
    device = "cpu" if share.gpus == 0 and recipe.scorer.device == "auto" else recipe.scorer.device
    weights, read = cast("Any", _read_weights).remote(checkpoint, dtype, device)
    trained_on, chosen = get_or_raise(read)
    if trained_on != recipe.scorer.reasoning:
        raise CheckpointError(
            f"{checkpoint} was trained with scorer.reasoning {trained_on!r}, and the recipe says "
            f"{recipe.scorer.reasoning!r}; set the recipe's to {trained_on!r}, or train again"
        )
    return _Source(checkpoint=checkpoint, weights=weights, dtype=chosen, device=device, share=share)


def _scored(
    windows: Iterator[list[Row]], source: _Source, recipe: Recipe, *, spool_at: tuple[RunDir, str], num_texts: int
) -> Iterator[pa.Table]:
    """Score the texts. Yields tables with the columns of ``_OUTPUT``, in any order.

    Args:
        spool_at: run and stage of the spool that GPUs read from.
        num_texts: approximate number of texts.
    """
    share = source.share
    num_workers = workers_for(num_texts, per_worker=TEXTS_PER_WORKER, share=share, config=recipe.ray)
    batch_size = min(BATCH_SIZE, math.ceil(num_texts / (num_workers * BATCHES_PER_WORKER)))
    # The reference is in a list, so that Ray does not resolve it.
    setup = {"source": replace(source, weights=[source.weights]), "recipe": recipe}
    if share.gpus == 0:
        tables = _tables(windows, size=batch_size)
        # Tasks suffice: loading the ensemble takes as long as scoring one or two texts.
        yield from map_in_tasks(ScoreBatch, setup, tables, num_cpus=share.cpus, num_at_once=num_workers)
        return
    run, stage = spool_at
    with contextlib.closing(Spool(run, stage, "spool")) as spool:
        for table in _tables(windows, size=slice_rows(num_texts, at_least=batch_size)):
            spool.add(table)
        yield from _on_gpus(spool, setup | {"batch_size": batch_size}, share, num_workers=num_workers)


def _tables(windows: Iterator[list[Row]], *, size: int) -> Iterator[pa.Table]:
    return (table for window in windows for table in in_tables(window, schema=_INPUT, size=size))


def _on_gpus(spool: Spool, setup: Mapping[str, Any], share: WorkerShare, *, num_workers: int) -> Iterator[pa.Table]:
    scored = ray.data.from_arrow(spool.addresses).map_batches(
        ScoreSlices,
        fn_constructor_kwargs=dict(setup),
        batch_size=1,
        batch_format="pyarrow",
        zero_copy_batch=True,
        num_cpus=share.cpus,
        num_gpus=share.gpus,
        # By default the first running actor takes four batches, which may be all there are.
        compute=ray.data.ActorPoolStrategy(size=num_workers, max_tasks_in_flight_per_actor=2),
    )
    try:
        yield from scored.iter_batches(batch_size=None, batch_format="pyarrow")
    except ActorDiedError as error:
        # A scorer that cannot be built dies in its constructor, and Ray keeps only the text of its error.
        checkpoint = setup["source"].checkpoint
        raise CheckpointError(f"no scorer could be started from {checkpoint}: {last_line(str(error))}") from error


@ray.remote(num_cpus=0.1, num_returns=2)
def _read_weights(checkpoint: str, dtype: str, device: str) -> tuple[dict[str, Any], tuple[Reasoning, str]]:
    """The backbone's weights for the object store, the scorer's reasoning mode, and the dtype: on CPUs one for all
    scorers, so that they do not choose differently."""
    from raydebm.scorer.checkpoint import read_ensemble
    from raydebm.scorer.ensemble import backbone_for
    from raydebm.scorer.model.backbone import frozen_weights

    with local_copy(checkpoint) as folder:
        record, _ = read_ensemble(folder)
    weights = frozen_weights(record.backbone)
    if dtype == "auto" and device == "cpu":
        dtype = backbone_for(record, weights=weights, device=device).dtype
    return weights, (record.reasoning, dtype)


class ScoreBatch:
    """Scorer of tables of texts.

    Input columns: ``prompt``, ``text``, ``members``, and the ``candidates`` with the text. Output columns, one row per
    candidate: ``ENERGIES``, ``dtype``, ``position``.
    """

    def __init__(self, *, source: _Source, recipe: Recipe) -> None:
        import torch

        from raydebm.scorer.checkpoint import read_ensemble
        from raydebm.scorer.ensemble import EnsembleScorer, backbone_for

        with local_copy(source.checkpoint) as folder:
            record, adapters = read_ensemble(folder)
        weights = ray.get(source.weights[0])
        backbone = backbone_for(record, weights=weights, device=source.device, dtype=source.dtype)
        torch.set_num_threads(recipe.ray.threads_per_worker)
        tokens = recipe.scorer.micro_batch_tokens
        self._scorer = EnsembleScorer.of_parts(record, adapters, backbone=backbone, micro_batch_tokens=tokens)
        self._dtype = backbone.dtype

    def __call__(self, batch: pa.Table) -> pa.Table:
        groups = [(key, list(rows)) for key, rows in groupby(batch.to_pylist(), key=lambda row: tuple(row["members"]))]
        scored = [row for members, rows in groups for row in self._rows(members, rows)]
        return pa.Table.from_pylist(scored, schema=_OUTPUT)

    def _rows(self, members: tuple[bool, ...], rows: Sequence[Row]) -> Iterator[Row]:
        texts = [(row["prompt"], row["text"]) for row in rows]
        scorer = self._scorer.asking(members) if members else self._scorer
        for row, scored in zip(rows, score_texts(scorer, texts), strict=True):
            made = ENERGIES.row(scored.spread_over(members)) | {DTYPE: self._dtype}
            yield from (made | named for named in row["candidates"])

    def close(self) -> None:
        """Nothing to free."""


class ScoreSlices(ScoreBatch):
    """``ScoreBatch`` for slices of a spool. Input column: ``address``."""

    def __init__(self, *, source: _Source, recipe: Recipe, batch_size: int) -> None:
        super().__init__(source=source, recipe=recipe)
        self._batch_size = batch_size

    def __call__(self, batch: pa.Table) -> pa.Table:
        batches = (part for table in read_slices(batch) for part in table.to_batches(max_chunksize=self._batch_size))
        return pa.concat_tables(super(ScoreSlices, self).__call__(pa.Table.from_batches([part])) for part in batches)
