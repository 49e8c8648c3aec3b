"""Energies of all candidates. On GPUs by Ray Data, in actors that load the ensemble once; on CPUs in tasks, which find
torch imported. Both map the backbones' shared weights.

In:   problems, candidates, a checkpoint.
Out:  ``<run>/<stage>/energies.parquet``, one row for each candidate, in their order. A candidate
      without text, or one whose energy is not a number, is a row with ``error``.

Equal texts of one problem are scored once. Texts go to the actors sorted by length, longest first, so that batches need
little padding and no long batch comes last.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, NamedTuple, cast

import pyarrow as pa
import ray
import ray.data
from ray.exceptions import ActorDiedError

from raydebm.config import Recipe
from raydebm.distributed.label import require_problems
from raydebm.distributed.placement import WorkerShare, at_once, cluster_nodes, share_of
from raydebm.distributed.pooled import in_tables, map_in_tasks
from raydebm.distributed.session import get_or_raise, is_own_cluster
from raydebm.errors import CheckpointError, ScoringError, last_line
from raydebm.records import Candidate, Problem, Reasoning
from raydebm.run.addresses import local_copy, resolved
from raydebm.run.codec import Row
from raydebm.run.directory import RunDir
from raydebm.run.tables import ENERGIES, EnergyRow
from raydebm.scorer.bisection import TextScorer, scores_or_errors


class Text(NamedTuple):
    """What is scored once."""

    prompt: str
    text: str
    members: tuple[bool, ...]
    """Whether each adapter scores it; (): all do."""


BATCH_SIZE = 128
TEXTS_PER_WORKER = 64
"""Below that a second worker costs more to start than it saves."""
BATCHES_PER_WORKER = 4
"""Few texts are divided so finely that all workers have something to do, and end together."""
INDEX, DTYPE = "index", "dtype"

_INPUT = pa.schema(
    [(INDEX, pa.int64()), ("prompt", pa.string()), ("text", pa.string()), ("members", pa.list_(pa.bool_()))]
)
_OUTPUT = pa.schema([(INDEX, pa.int64()), (DTYPE, pa.string()), *list(ENERGIES.schema)[1:]])


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreSummary:
    """How many candidates have energies."""

    num_candidates: int
    num_failed: int
    num_truncated: int
    """Candidates whose problem was cut to fit the context."""
    num_texts: int
    """Distinct texts that were run."""
    dtype: str
    """Type of the encoder; with ``scorer.dtype: auto`` what was chosen, or auto where there was nothing to score."""
    errors: tuple[str, ...]
    """The first three."""

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
    """Candidates that are to be scored.

    Raises:
        PoolError: a candidate's problem is not among the problems.
    """

    problems: Mapping[str, Problem]
    """By problem id."""
    candidates: Sequence[Candidate]
    members: Mapping[str, Sequence[bool]] = field(default_factory=dict)
    """Which adapters score the candidates of a problem, by problem id; the others' energies are null. A problem that is
    not named has all."""

    def __post_init__(self) -> None:
        require_problems(self.problems, {candidate.problem_id for candidate in self.candidates})

    def as_scored(self, reasoning: Reasoning) -> "ScoringInput":
        """With the texts that the scorer reads."""
        return replace(self, candidates=[candidate.as_scored(reasoning) for candidate in self.candidates])

    def text_of(self, candidate: Candidate) -> Text:
        """What is scored for a candidate."""
        prompt, asked = self.problems[candidate.problem_id].prompt, self.members.get(candidate.problem_id, ())
        return Text(prompt, candidate.text or "", tuple(asked))

    def distinct_texts(self) -> dict[Text, int]:
        """Texts and their index: those that few adapters score last, each kind together, longest first."""
        texts = {self.text_of(candidate) for candidate in self.candidates if candidate.text is not None}
        ordered = sorted(texts, key=lambda text: (sum(text.members), text.members, -len(text.prompt + text.text), text))
        return {text: index for index, text in enumerate(ordered)}


def score(
    given: ScoringInput,
    *,
    checkpoint: str,
    recipe: Recipe,
    run: RunDir,
    stage: str = "energies",
    on_progress: Callable[[int, int], None] | None = None,
) -> ScoreSummary:
    """Score every candidate as ``scorer.reasoning`` reads it. Ray is initialised.

    Args:
        checkpoint: the ensemble's folder or URL; every node can read it.
        on_progress: (distinct texts done, distinct texts).

    Raises:
        CheckpointError: the checkpoint is missing, torn or mixed, or was trained with another ``scorer.reasoning``.
        ResourceError: no node can hold a scorer.
    """
    given = given.as_scored(recipe.scorer.reasoning)
    texts = given.distinct_texts()
    scored: dict[int, Row] = {}
    dtype = run.scoring_type(recipe.scorer.dtype)
    if texts:
        source = _read(resolved(checkpoint), recipe, dtype)
        for batch in _scored(list(texts), source, recipe):
            scored.update({row[INDEX]: row for row in batch.to_pylist()})
            if on_progress is not None:
                on_progress(len(scored), len(texts))
        dtype = scored[0][DTYPE]
    rows = [
        _candidate_row(candidate, scored.get(texts.get(given.text_of(candidate), -1))) for candidate in given.candidates
    ]
    run.write_energies(rows, stage)
    errors = [row.error for row in rows if row.error is not None]
    return ScoreSummary(
        num_candidates=len(rows),
        num_failed=len(errors),
        num_truncated=sum(row.num_truncated > 0 for row in rows),
        num_texts=len(texts),
        dtype=dtype,
        errors=tuple(dict.fromkeys(errors))[:3],
    )


def _candidate_row(candidate: Candidate, row: Row | None) -> EnergyRow:
    if row is None:
        error = f"no text to score: {candidate.error}"
        return EnergyRow(candidate_id=candidate.candidate_id, members=None, error=error)
    return ENERGIES.record(row | {"candidate_id": candidate.candidate_id})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
    """What all scorers of a stage load."""

    checkpoint: str
    weights: Any
    """Reference to those of the backbones, by name."""
    dtype: str
    device: str
    share: WorkerShare
    """What one scorer takes."""


def _read(checkpoint: str, recipe: Recipe, dtype: str) -> _Source:
    """Read the checkpoint on the cluster, and choose its type once for all scorers.

    Raises:
        CheckpointError: see ``score``; likewise ResourceError.
    """
    share = share_of(recipe.ray, cluster_nodes())
    device = "cpu" if share.gpus == 0 and recipe.scorer.device == "auto" else recipe.scorer.device
    weights, checked = cast("Any", _read_weights).remote(checkpoint, dtype, device)
    trained_on, chosen = get_or_raise(checked)
    if trained_on != recipe.scorer.reasoning:
        raise CheckpointError(
            f"{checkpoint} was trained with scorer.reasoning {trained_on!r}, and the recipe says "
            f"{recipe.scorer.reasoning!r}; set the recipe's to {trained_on!r}, or train again"
        )
    return _Source(checkpoint=checkpoint, weights=weights, dtype=chosen, device=device, share=share)


def _scored(texts: Sequence[Text], source: _Source, recipe: Recipe) -> Iterator[pa.Table]:
    share = source.share
    most = at_once(recipe.ray, share, cluster_nodes(), is_own_cluster=is_own_cluster())
    num_workers = min(math.ceil(len(texts) / TEXTS_PER_WORKER), most)
    rows = [{INDEX: index} | text._asdict() for index, text in enumerate(texts)]
    batch_size = min(BATCH_SIZE, math.ceil(len(rows) / (num_workers * BATCHES_PER_WORKER)))
    tables = in_tables(rows, schema=_INPUT, size=batch_size)
    # The reference in a list, so that nothing on the way resolves it.
    setup = {"source": replace(source, weights=[source.weights]), "recipe": recipe}
    if share.gpus == 0:
        # Loading takes as long as scoring one or two texts.
        yield from map_in_tasks(ScoreBatch, setup, tables, num_cpus=share.cpus, num_at_once=num_workers)
        return
    scored = ray.data.from_arrow(list(tables)).map_batches(
        ScoreBatch,
        fn_constructor_kwargs=setup,
        batch_size=batch_size,
        batch_format="pyarrow",
        zero_copy_batch=True,
        num_cpus=share.cpus,
        num_gpus=share.gpus,
        # By default the first actor to be up takes four batches, which may be all there are.
        compute=ray.data.ActorPoolStrategy(size=num_workers, max_tasks_in_flight_per_actor=2),
    )
    try:
        yield from scored.iter_batches(batch_size=None, batch_format="pyarrow")
    except ActorDiedError as error:
        # A scorer that cannot be built dies in its constructor, and Ray keeps of its error only the text.
        raise CheckpointError(
            f"no scorer could be started from {source.checkpoint}: {last_line(str(error))}"
        ) from error


@ray.remote(num_cpus=0.1, num_returns=2)
def _read_weights(checkpoint: str, dtype: str, device: str) -> tuple[dict[str, dict[str, Any]], tuple[Reasoning, str]]:
    """The backbones' weights, for the object store, what the training texts held, and the type to score in: on CPUs
    one for all scorers, so that no two of them choose differently."""
    from raydebm.scorer.checkpoint import read_ensemble
    from raydebm.scorer.member_groups import load_backbones
    from raydebm.scorer.model.backbone import frozen_weights

    with local_copy(checkpoint) as folder:
        record, _ = read_ensemble(folder)
    weights = {name: frozen_weights(name) for name in record.backbones}
    if dtype == "auto" and device == "cpu":
        dtype = load_backbones(record, weights=weights, device=device)[0].dtype
    return weights, (record.reasoning, dtype)


class ScoreBatch:
    """Columns needed: ``index``, ``prompt``, ``text``. Columns given: ``index``, ``dtype``, ``ENERGIES`` without the
    id."""

    def __init__(self, *, source: _Source, recipe: Recipe) -> None:
        import torch

        from raydebm.scorer.checkpoint import read_ensemble
        from raydebm.scorer.ensemble import EnsembleScorer
        from raydebm.scorer.member_groups import load_backbones

        with local_copy(source.checkpoint) as folder:
            record, adapters = read_ensemble(folder)
        weights = ray.get(source.weights[0])
        backbones = load_backbones(record, weights=weights, device=source.device, dtype=source.dtype)
        torch.set_num_threads(recipe.ray.threads_per_worker)
        tokens = recipe.scorer.micro_batch_tokens
        self._scorer = EnsembleScorer.of_parts(record, adapters, backbones=backbones, micro_batch_tokens=tokens)
        self._dtype = backbones[0].dtype

    def __call__(self, batch: pa.Table) -> pa.Table:
        groups = [(key, list(rows)) for key, rows in groupby(batch.to_pylist(), key=lambda row: tuple(row["members"]))]
        scored = [row for members, rows in groups for row in self._rows(members, rows)]
        return pa.Table.from_pylist(scored, schema=_OUTPUT)

    def _rows(self, members: tuple[bool, ...], rows: Sequence[Row]) -> Iterator[Row]:
        texts = [(row["prompt"], row["text"]) for row in rows]
        scorer = self._scorer.asking(members) if members else self._scorer
        for row, scored in zip(rows, score_texts(scorer, texts), strict=True):
            yield {INDEX: row[INDEX], DTYPE: self._dtype} | ENERGIES.row(
                replace(scored, members=_spread(scored.members, members))
            )

    def close(self) -> None:
        """Nothing outlives the scorer."""


def _spread(energies: tuple[float | None, ...] | None, members: Sequence[bool]) -> tuple[float | None, ...] | None:
    """One entry per adapter, None for those that were not asked."""
    if energies is None or not members:
        return energies
    remaining = iter(energies)
    return tuple(next(remaining) if is_asked else None for is_asked in members)


def score_texts(scorer: TextScorer, texts: Sequence[tuple[str, str]]) -> list[EnergyRow]:
    """Rows without ids; a text that could not be scored has its error in its row."""
    return [
        EnergyRow(candidate_id="", members=None, error=str(one))
        if isinstance(one, ScoringError)
        else EnergyRow(candidate_id="", members=one.members, num_tokens=one.num_tokens, num_truncated=one.num_truncated)
        for one in scores_or_errors(scorer, texts)
    ]
