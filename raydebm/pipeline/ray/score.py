"""Energies of all candidates: on GPUs with Ray Data actors that load the ensemble once, on CPUs in tasks. All workers
of a node share the backbone's weights.

In:   problems, candidates, a checkpoint.
Out:  ``<run>/<stage>/energies.parquet``, one row per candidate, in their order. A candidate without text or with a NaN
      energy is a row with ``error``.

Candidates are read in windows of whole problems, which bounds memory: only the energies of a candidate are kept.
Equal texts of a problem in a window are scored once. Texts are sorted by length within a window, longest first, so that
batches need little padding and no long batch is last. For a decoder that reads a problem once, they are then grouped by
problem.
"""

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, groupby
from typing import Any, NamedTuple, cast

import pyarrow as pa
import pyarrow.compute as pc
import ray
import ray.data
from ray.exceptions import ActorDiedError

from raydebm.config import Recipe
from raydebm.cpus import usable_cpus
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
from raydebm.run.spool import Spool, read_slices, slice_rows
from raydebm.run.tables import ENERGIES, EnergyRow, KnownEnergies
from raydebm.scorer.texts import score_texts


class Text(NamedTuple):
    """A distinct text to score."""

    prompt: str
    text: str
    members: tuple[bool, ...]
    """True for each adapter that scores the text; empty for all adapters."""


BATCH_SIZE = 128
SAMPLED_TEXTS = 32
"""Texts on which a CPU's bfloat16 is compared with float32 before it is chosen."""
TEXTS_PER_WORKER = 64
"""Below this number a second worker costs more to start than it saves."""
BATCHES_PER_WORKER = 4
"""Batches per worker for few texts, so that all workers are busy and end together."""
WINDOW_ROWS = 8192
WINDOW_CHARS = 2**25
"""Candidates, and characters of their texts, after which a window ends with the current problem."""
DTYPE, POSITION = "dtype", "position"

_ID = "candidate_id"
_CANDIDATES = pa.list_(pa.struct([(POSITION, pa.int64()), (_ID, pa.string())]))
_INPUT = pa.schema(
    [("prompt", pa.string()), ("text", pa.string()), ("members", pa.list_(pa.bool_())), ("candidates", _CANDIDATES)]
)
_NUM_ERRORS = 3
_OUTPUT = pa.schema([*ENERGIES.schema, (DTYPE, pa.string()), (POSITION, pa.int64())])


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoringInput:
    """Candidates to score."""

    problems: Mapping[str, Problem]
    """Problems by problem id."""
    candidates: Many[Candidate]
    """Candidates, grouped by problem; otherwise equal texts of a problem may be scored twice."""
    members: Mapping[str, Sequence[bool]] = field(default_factory=dict)
    """By problem id, True for each adapter that scores its candidates; the other energies are null. Default: all."""
    known: KnownEnergies | None = None
    """Energies of candidates that need no scoring."""

    def text_of(self, candidate: Candidate) -> Text:
        """The text to score for a candidate."""
        prompt, members = self.problems[candidate.problem_id].prompt, self.members.get(candidate.problem_id, ())
        return Text(prompt, candidate.text or "", tuple(members))

    def row_without_scoring(self, candidate: Candidate) -> Row | None:
        """The row of a candidate that needs no scoring, else None."""
        name, dtype = candidate.candidate_id, None if self.known is None else self.known.dtype
        if candidate.text is None:
            error = f"no text to score: {candidate.error}"
            return ENERGIES.row(EnergyRow(candidate_id=name, members=None, error=error)) | {DTYPE: None}
        if self.known is None or name not in self.known.rows:
            return None
        return ENERGIES.row(self.known.rows[name].of_members(self.text_of(candidate).members)) | {DTYPE: dtype}


def score(
    given: ScoringInput,
    *,
    checkpoint: str,
    recipe: Recipe,
    run: RunDir,
    stage: str = "energies",
    on_progress: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """Score every candidate in the form of ``scorer.reasoning``; returns facts for the manifest. Ray must be
    initialised.

    Args:
        checkpoint: the ensemble's folder or URL, readable on every node.
        on_progress: called with (candidates done, candidates).

    Raises:
        CheckpointError: the checkpoint is missing, corrupt or mixed, or was trained with another ``scorer.reasoning``.
        PoolError: a candidate names an unknown problem.
        ResourceError: no node can hold a scorer, and ``ray.max_workers`` does not ask for one.
    """
    total, num_done, num_texts = len(given.candidates), 0, 0
    rank_correlation: float | None = None
    made = [_OUTPUT.empty_table()]

    def take(table: pa.Table) -> None:
        nonlocal num_done
        made.append(table)
        num_done += table.num_rows
        if on_progress is not None:
            on_progress(num_done, total)

    def counted(windows: Iterator[list[Row]]) -> Iterator[list[Row]]:
        nonlocal num_texts
        for texts in windows:
            num_texts += len(texts)
            yield texts

    windows = counted(_distinct_texts(given, recipe.scorer.reasoning, take))
    if first := next(windows, None):
        dtype = given.known.dtype if given.known else run.scoring_type(recipe.scorer.dtype)
        source = _read(resolved(checkpoint), recipe, dtype, sample=first[:: math.ceil(len(first) / SAMPLED_TEXTS)])
        rank_correlation = source.rank_correlation
        expected = len(first) if total <= WINDOW_ROWS else total
        for table in _scored(chain([first], windows), source, recipe, spool_at=(run, stage), num_texts=expected):
            take(table)
    rows = pa.concat_tables(made).sort_by(POSITION)
    with run.open_table(ENERGIES, stage, "energies.parquet") as energies:
        energies.write(rows)
    failed, dtypes = rows["error"].drop_null(), rows[DTYPE].drop_null().unique().to_pylist()
    return {
        "candidates": rows.num_rows,
        "failed": len(failed),
        "truncated": pc.sum(pc.greater(rows["num_truncated"], 0), min_count=0).as_py(),
        "texts": num_texts,
        "dtype": dtypes[0] if dtypes else run.scoring_type(recipe.scorer.dtype),
        "rank_correlation_of_bfloat16": rank_correlation,
        "errors": failed.unique().to_pylist()[:_NUM_ERRORS],
    }


def _distinct_texts(given: ScoringInput, reasoning: Reasoning, take: Callable[[pa.Table], None]) -> Iterator[list[Row]]:
    """Distinct texts of the candidates, window by window, as rows of ``_INPUT``: by set of adapters, those of all
    adapters first, and longest first within each set.

    Args:
        take: called with the rows of candidates that need no scoring.
    """
    for window in in_windows(enumerate(candidate.as_scored(reasoning) for candidate in given.candidates)):
        require_problems(given.problems, {candidate.problem_id for _, candidate in window})
        ready: list[Row] = []
        placed: dict[Text, list[Row]] = {}
        for position, candidate in window:
            row = given.row_without_scoring(candidate)
            if row is not None:
                ready.append(row | {POSITION: position})
            else:
                named = {POSITION: position, _ID: candidate.candidate_id}
                placed.setdefault(given.text_of(candidate), []).append(named)
        if ready:
            take(pa.Table.from_pylist(ready, schema=_OUTPUT))
        if placed:
            ordered = sorted(
                placed, key=lambda text: (sum(text.members), text.members, -len(text.prompt + text.text), text)
            )
            yield [text._asdict() | {"candidates": placed[text]} for text in ordered]


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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
    """Checkpoint, weights and resources of all scorers of a stage."""

    checkpoint: str
    weights: Any
    """Reference to the backbone's weights."""
    shares_prefixes: bool
    """True if a problem is read once for the candidates of a batch."""
    dtype: str
    rank_correlation: float | None
    """Rank correlation of bfloat16's mean energies with float32's. None if bfloat16 is not faster here."""
    device: str
    share: WorkerShare
    """Resources of one scorer."""


def _read(checkpoint: str, recipe: Recipe, dtype: str, *, sample: Sequence[Row]) -> _Source:
    """Read the checkpoint on the cluster, and choose one dtype for all scorers.

    Args:
        sample: texts on which a CPU's bfloat16 is compared with float32.

    Raises:
        CheckpointError, ResourceError: see ``score``.
    """
    share = share_of(recipe.ray, cluster_nodes())
    device = "auto" if share.gpus else "cpu"
    texts = [(row["prompt"], row["text"]) for row in sample]
    weights, read = cast("Any", _read_weights).remote(checkpoint, recipe, dtype, device, texts)
    trained_on, chosen, correlation, shares = get_or_raise(read)
    if trained_on != recipe.scorer.reasoning:
        raise CheckpointError(
            f"{checkpoint} was trained with scorer.reasoning {trained_on!r}, and the recipe says "
            f"{recipe.scorer.reasoning!r}; set the recipe's to {trained_on!r}, or train again"
        )
    return _Source(
        checkpoint=checkpoint,
        weights=weights,
        shares_prefixes=shares,
        dtype=chosen,
        rank_correlation=correlation,
        device=device,
        share=share,
    )


def _scored(
    windows: Iterator[list[Row]], source: _Source, recipe: Recipe, *, spool_at: tuple[RunDir, str], num_texts: int
) -> Iterator[pa.Table]:
    """Score the texts. Yields tables with the columns of ``_OUTPUT``, in any order.

    Args:
        spool_at: run and stage of the spool that GPUs read from.
        num_texts: approximate number of texts.
    """
    share = source.share
    if source.shares_prefixes:
        windows = map(by_problem, windows)
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


def by_problem(texts: Sequence[Row]) -> list[Row]:
    """Texts of a problem and set of adapters one after the other, in the order of their first ones."""
    first: dict[tuple[Any, str], int] = {}
    for place, text in enumerate(texts):
        first.setdefault((text["members"], text["prompt"]), place)
    return sorted(texts, key=lambda text: first[text["members"], text["prompt"]])


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
def _read_weights(
    checkpoint: str, recipe: Recipe, dtype: str, device: str, texts: Sequence[tuple[str, str]]
) -> tuple[dict[str, Any], tuple[Reasoning, str, float | None, bool]]:
    """The backbone's weights for the object store, the scorer's reasoning mode, the dtype (on CPUs one for all scorers,
    so that they do not choose differently) and its rank correlation, and whether the backbone reads common prefixes
    once."""
    import torch

    from raydebm.scorer.checkpoint import read_ensemble
    from raydebm.scorer.ensemble import cpu_dtype_for
    from raydebm.scorer.model.backbone import backbone_config, frozen_weights
    from raydebm.scorer.model.prefix import shares_prefixes

    with local_copy(checkpoint) as folder:
        record, adapters = read_ensemble(folder)
    weights, correlation = frozen_weights(record.backbone), None
    if dtype == "auto" and device == "cpu":
        torch.set_num_threads(min(recipe.ray.threads, usable_cpus()))
        tokens = recipe.scorer.micro_batch_tokens
        dtype, correlation = cpu_dtype_for(record, adapters, weights, texts, micro_batch_tokens=tokens)
    return weights, (record.reasoning, dtype, correlation, shares_prefixes(backbone_config(record.backbone)))


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
        torch.set_num_threads(min(recipe.ray.threads, usable_cpus()))
        tokens = recipe.scorer.micro_batch_tokens
        self._scorer = EnsembleScorer.of_parts(record, adapters, backbone=backbone, micro_batch_tokens=tokens)
        self._dtype = backbone.dtype

    def __call__(self, batch: pa.Table) -> pa.Table:
        groups = [(key, list(rows)) for key, rows in groupby(batch.to_pylist(), key=lambda row: tuple(row["members"]))]
        scored = [row for members, rows in groups for row in self._rows(members, rows)]
        return pa.Table.from_pylist(scored, schema=_OUTPUT)

    def _rows(self, members: tuple[bool, ...], rows: Sequence[Row]) -> Iterator[Row]:
        texts = [(row["prompt"], row["text"]) for row in rows]
        scorer = self._scorer.with_adapters(members) if members else self._scorer
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
