"""The real packages, without a network: what was told is read back with their own readers."""

import json
import struct

import pytest

from raydebm.run.directory import RunDir
from raydebm.scorer.tracking import TrackedAdapter, TrackedTraining, Tracking

CURVE = [(1, {"train_loss": 0.75, "validation_accuracy": 0.5}), (2, {"train_loss": 0.25, "validation_accuracy": 1.0})]


def training_of(root, *, adapters=("a0",)):
    return TrackedTraining(
        project="figures",
        run_name="tiny",
        run=RunDir(str(root)),
        adapters={
            name: TrackedAdapter(identity=f"fedcba9876{name}", settings={"adapter.rank": 2, "task": "gsm8k"})
            for name in adapters
        },
    )


def tell(name, training, curve, *, finish=True):
    """Epochs of a0, and its end; warnings would be failures here."""
    tracking = Tracking([name], training)
    for epoch, metrics in curve:
        tracking.epoch("a0", epoch, metrics)
    if finish:
        tracking.finish("a0", {"best_epoch": 2, "validation_accuracy": 1.0})
    tracking.close(limit_s=240)


def scalars(folder, tag):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder))
    events.Reload()
    return [(event.step, event.value) for event in events.Scalars(tag)]


@pytest.fixture
def no_warnings(caplog):
    yield
    assert [record.message for record in caplog.records if record.name.startswith("raydebm")] == []


@pytest.mark.usefixtures("no_warnings")
class TestTensorBoard:
    @pytest.fixture(autouse=True)
    def _installed(self):
        pytest.importorskip("tensorboard")

    def test_every_epoch_is_a_point_of_the_adapters_curve(self, tmp_path):
        tell("tensorboard", training_of(tmp_path), CURVE)

        folder = tmp_path / "tensorboard" / "tiny" / "a0"
        assert scalars(folder, "train_loss") == [(1, 0.75), (2, 0.25)]
        assert scalars(folder, "validation_accuracy") == [(1, 0.5), (2, 1.0)]
        assert scalars(folder, "kept/best_epoch") == [(0, 2.0)]

    def test_settings_are_hyperparameters(self, tmp_path):
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
        from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

        tell("tensorboard", training_of(tmp_path), CURVE)
        events = EventAccumulator(str(tmp_path / "tensorboard" / "tiny" / "a0"))
        events.Reload()
        content = events.PluginTagToContent("hparams")["_hparams_/session_start_info"]
        hparams = HParamsPluginData.FromString(content).session_start_info.hparams

        assert (hparams["adapter.rank"].number_value, hparams["task"].string_value) == (2, "gsm8k")

    def test_epochs_that_are_told_again_stand_once(self, tmp_path):
        tell("tensorboard", training_of(tmp_path), CURVE[:1], finish=False)
        tell("tensorboard", training_of(tmp_path), CURVE)

        assert scalars(tmp_path / "tensorboard" / "tiny" / "a0", "train_loss") == [(1, 0.75), (2, 0.25)]

    def test_a_run_directory_behind_a_url_gets_the_files_too(self, tmp_path):
        tell("tensorboard", training_of(f"file://{tmp_path}"), CURVE)

        assert scalars(tmp_path / "tensorboard" / "tiny" / "a0", "train_loss") == [(1, 0.75), (2, 0.25)]


def log_entries(content):
    """Entries of a run's log: LevelDB's format (blocks of 32 KiB; crc, length, kind, data) after 7 bytes of its own."""
    entries, entry, position = [], b"", 7
    while position + 7 <= len(content):
        if 32768 - position % 32768 < 7:
            position += 32768 - position % 32768
            continue
        length, kind = struct.unpack_from("<HB", content, position + 4)
        entry += content[position + 7 : position + 7 + length]
        position += 7 + length
        if kind in (1, 4):  # whole, or the last part
            entries.append(entry)
            entry = b""
    return entries


@pytest.mark.slow
@pytest.mark.usefixtures("no_warnings")
class TestWandb:
    @pytest.fixture(autouse=True)
    def _offline(self, tmp_path, monkeypatch):
        pytest.importorskip("wandb")
        for name in ("WANDB_DIR", "WANDB_API_KEY"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("WANDB_MODE", "offline")
        for name in ("CONFIG", "CACHE", "DATA"):
            monkeypatch.setenv(f"WANDB_{name}_DIR", str(tmp_path / name.lower()))

    def history(self, file):
        """(epochs, config, names) of an offline run's log."""
        from wandb.proto.wandb_internal_pb2 import Record

        rows, config, names = [], {}, {}
        for data in log_entries(file.read_bytes()):
            record = Record.FromString(data)
            for entry in record.run.config.update:
                config[entry.key or ".".join(entry.nested_key)] = json.loads(entry.value_json)
            if record.HasField("run"):
                names = {"name": record.run.display_name, "group": record.run.run_group, "id": record.run.run_id}
            if record.HasField("history"):
                row = {(entry.key or ".".join(entry.nested_key)): entry.value_json for entry in record.history.item}
                rows.append({key: json.loads(value) for key, value in row.items() if not key.startswith("_")})
                rows[-1]["step"] = record.history.step.num
        return rows, config, names

    def test_adapters_are_runs_of_one_group(self, tmp_path):
        tell("wandb", training_of(tmp_path, adapters=("a0", "a1")), CURVE)

        files = {file.stem: file for file in tmp_path.glob("wandb/offline-run-*/run-*.wandb")}
        assert sorted(files) == ["run-fedcba9876a0", "run-fedcba9876a1"]
        rows, config, names = self.history(files["run-fedcba9876a0"])
        assert rows == [{**metrics, "step": epoch} for epoch, metrics in CURVE]
        assert config["adapter.rank"] == 2
        assert names == {"name": "tiny/a0", "group": "tiny", "id": "fedcba9876a0"}


def test_weights_and_biases_without_a_key_says_so_instead_of_asking(tmp_path, monkeypatch, caplog):
    pytest.importorskip("wandb")
    for name in ("WANDB_MODE", "WANDB_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))

    tell("wandb", training_of(tmp_path), CURVE)

    assert "not logged in; run `wandb login`" in caplog.text
