"""A causal language model that reads an answer, and linear heads on its frozen states that learned right from wrong.

In:   the run's training pairs; then pools.
Out:  the heads' score per text, higher is better, with a reader's signals as parts (``baselines.causal_reader``).
Does not know: energies, who wrote an answer.

An answer's features are the mean over its tokens of one layer's hidden states, and the mean over its last tokens.
The heads are ``raydebm.baselines.linear_heads``. Nothing of the model is trained, so a text costs one forward pass, in
training and after it; texts that were read for training are not read again for scoring in the same process.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from raydebm.baselines.causal_reader import Reader, StatePooling
from raydebm.baselines.linear_heads import Floats, LinearHeads, fit_heads
from raydebm.baselines.protocol import PoolTexts, TextScore
from raydebm.baselines.readings import Reading
from raydebm.baselines.text_pooling import flattened, regrouped
from raydebm.config import ProbeBaseline
from raydebm.errors import CheckpointError, PoolError
from raydebm.identity import content_id
from raydebm.pairs import TrainingGroup
from raydebm.scorer.checkpoint import load_tensors, read_record, save_tensors
from raydebm.scorer.checkpoint_records import Record
from raydebm.scorer.training.adapter_data import data_fingerprint

RECORD_FILE = "probe.json"
HEADS_FILE = "probe.safetensors"
_PLACEMENT = {"name", "device", "micro_batch_tokens", "evidence"}
"""Settings that say where and how, not what."""


class ProbeRecord(Record):
    """probe.json, written last."""

    format: int = 1
    config: ProbeBaseline
    data_fingerprint: str
    folds: dict[str, int]
    """Fold of each training problem, by the content id of its prompt."""
    inverse_penalty: float
    loss: float
    """Mean loss over training problems left out, in nats; ln 2 is chance."""
    num_pairs: int


class Probe:
    """Heads on a reader's hidden states."""

    def __init__(self, config: ProbeBaseline, *, reader: Reader, heads: LinearHeads, record: ProbeRecord) -> None:
        self.name = config.name
        self.record = record
        self._reader, self._heads = reader, heads
        self._known: Mapping[tuple[str, str], Reading] = {}

    @classmethod
    def load(cls, folder: Path, config: ProbeBaseline) -> "Probe":
        """Raises CheckpointError when the folder is missing, torn, or made from another model."""
        record = read_record(folder / RECORD_FILE, ProbeRecord)
        if _settings(record.config) != _settings(config):
            raise CheckpointError(
                f"baseline {config.name!r}: the heads in {folder} were trained with other settings "
                f"(model {record.config.model!r}, layer {record.config.layer}); remove the folder, and run "
                "`raydebm evaluate`"
            )
        return cls(config, reader=_reader(config), heads=_read_heads(folder, record), record=record)

    @staticmethod
    def is_trained(folder: Path, config: ProbeBaseline, train: Sequence[TrainingGroup]) -> bool:
        """Whether the folder holds heads of these settings and this data."""
        if not (folder / RECORD_FILE).is_file():
            return False
        record = read_record(folder / RECORD_FILE, ProbeRecord)
        return _settings(record.config) == _settings(config) and record.data_fingerprint == data_fingerprint(train)

    def score(self, pools: Sequence[PoolTexts]) -> list[list[TextScore]]:
        texts = flattened(pools)
        missing = [text for text in dict.fromkeys(texts) if text not in self._known]
        readings = {**self._known, **dict(zip(missing, self._reader.read(missing), strict=True))}
        return regrouped(pools, self._scores(texts, [readings[text] for text in texts]))

    def _scores(self, texts: Sequence[tuple[str, str]], readings: Sequence[Reading]) -> list[TextScore]:
        places = [place for place, reading in enumerate(readings) if reading.features is not None]
        scores = [TextScore.failed(reading.error or "the model gives no hidden states") for reading in readings]
        if not places:
            return scores
        features = _stacked([readings[place] for place in places])
        folds = [self.record.folds.get(content_id(texts[place][0])) for place in places]
        for place, value in zip(places, self._heads.scores(features, folds), strict=True):
            scores[place] = TextScore.of(float(value), readings[place].signals())
        return scores


def train_probe(config: ProbeBaseline, *, train: Sequence[TrainingGroup], folder: Path) -> Probe:
    """Read the training problems' texts, fit the heads and write them. The same call gives the same heads on a machine.

    Raises:
        PoolError: fewer problems have pairs than there are folds.
        CheckpointError: the model cannot be read, or has no such layer.
    """
    reader = _reader(config)
    texts = [(group.prompt, text) for group in train for text in group.texts]
    readings = dict(zip(texts, reader.read(texts), strict=True))
    usable = [group for group in (_readable(group, readings) for group in train) if group.pairs]
    if not usable:
        raise PoolError(f"baseline {config.name!r}: no pairs to train on; sample more candidates per problem")
    features = {group.problem_id: _stacked([readings[group.prompt, text] for text in group.texts]) for group in usable}
    heads, folds = fit_heads(
        usable, features, num_components=config.num_components, num_folds=config.num_folds, seed=config.seed
    )
    record = ProbeRecord(
        config=config,
        data_fingerprint=data_fingerprint(train),
        folds={content_id(prompt): fold for prompt, fold in folds.items()},
        inverse_penalty=heads.inverse_penalty,
        loss=heads.loss,
        num_pairs=sum(len(group.pairs) for group in usable),
    )
    _write(folder, heads, record)
    probe = Probe(config, reader=reader, heads=heads, record=record)
    probe._known = readings
    return probe


def _reader(config: ProbeBaseline) -> Reader:
    return Reader(config, states=StatePooling(layers=(config.layer,), last_tokens=config.last_tokens))


def _readable(group: TrainingGroup, readings: Mapping[tuple[str, str], Reading]) -> TrainingGroup:
    """Without the texts in which the model found nothing to read."""
    places = [place for place, text in enumerate(group.texts) if readings[group.prompt, text].features is not None]
    new = {place: position for position, place in enumerate(places)}
    return replace(
        group,
        texts=tuple(group.texts[place] for place in places),
        pairs=tuple((new[right], new[wrong]) for right, wrong in group.pairs if right in new and wrong in new),
    )


def _stacked(readings: Sequence[Reading]) -> Floats:
    """Features, shape (N, D), of readings that have them."""
    return np.array([reading.features for reading in readings], dtype=np.float64)


def _settings(config: ProbeBaseline) -> dict[str, object]:
    return config.model_dump(exclude=_PLACEMENT)


def _write(folder: Path, heads: LinearHeads, record: ProbeRecord) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / RECORD_FILE).unlink(missing_ok=True)
    arrays = {"mean": heads.mean_D, "projection": heads.projection_DK, "weights": heads.weights_FK}
    save_tensors(
        folder / HEADS_FILE, {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in arrays.items()}
    )
    (folder / RECORD_FILE).write_text(record.model_dump_json(indent=2) + "\n", encoding="utf-8")


def _read_heads(folder: Path, record: ProbeRecord) -> LinearHeads:
    tensors = load_tensors(folder / HEADS_FILE)
    try:
        arrays = {name: tensors[name].double().numpy() for name in ("mean", "projection", "weights")}
    except KeyError as error:
        raise CheckpointError(
            f"{folder / HEADS_FILE} has no tensor {error}; remove the folder, and train again"
        ) from error
    return LinearHeads(
        mean_D=arrays["mean"],
        projection_DK=arrays["projection"],
        weights_FK=arrays["weights"],
        inverse_penalty=record.inverse_penalty,
        loss=record.loss,
    )
