import dataclasses
import math
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file

from raydebm.config import PAPER_ADAPTERS, parse_recipe
from raydebm.errors import CheckpointError, ConfigError, PoolError, TrainingError
from raydebm.scorer.checkpoint import read_adapter
from raydebm.scorer.pairs import TrainingGroup
from raydebm.scorer.training.adapter import train_adapter
from raydebm.scorer.training.member import EnsembleMember
from raydebm.scorer.training.schedule import (
    AdapterData,
    Portion,
    data_fingerprint,
    learning_rate_factor,
    plan_steps,
    portions_of,
)
from raydebm.scorer.training.settings import TrainingSettings, autocast_dtype, graph_bytes
from raydebm.tasks.base import TaskDefaults

A0 = PAPER_ADAPTERS[0]


class Reports(list):
    """Keeps reports, and copies of their checkpoints when a folder is given."""

    def __init__(self, folder=None, stop_after=None):
        super().__init__()
        self._folder, self._stop_after = folder, stop_after

    def __call__(self, report):
        self.append(report)
        if self._folder is not None:
            copy = self._folder / report.checkpoint.name
            copy.mkdir(parents=True)
            for file in report.checkpoint.iterdir():
                (copy / file.name).write_bytes(file.read_bytes())
        if len(self) == self._stop_after:
            raise KeyboardInterrupt


@pytest.fixture
def train(tiny, groups, settings, tmp_path):
    """train_adapter on the tiny ModernBERT with the standard data; keywords replace arguments."""

    def call(folder="out", *, report=None, family="modernbert", adapter=A0, **changes):
        arguments = {"train": groups[0], "validation": groups[1], "settings": settings} | changes
        data = AdapterData(train=arguments.pop("train"), validation=arguments.pop("validation"))
        report = Reports() if report is None else report
        return train_adapter(
            adapter, data, backbone=tiny[family], out_dir=tmp_path / folder, report=report, **arguments
        )

    return call


def weights(folder):
    return {name: load_file(folder / name) for name in ("adapter_model.safetensors", "head.safetensors")}


def assert_same_weights(first, second):
    first, second = weights(first), weights(second)
    for file, tensors in first.items():
        assert tensors.keys() == second[file].keys()
        for key, tensor in tensors.items():
            assert torch.equal(tensor, second[file][key]), f"{file}: {key}"


def without_seconds(record):
    return [metrics.model_dump(exclude={"seconds"}) for metrics in record.epochs]


@pytest.mark.parametrize("family", ["modernbert", "deberta-v2", "bert"])
def test_training_learns_what_can_be_learnt(train, family, settings):
    settings = dataclasses.replace(settings, max_epochs=6, learning_rate=1e-2)
    best = train(family=family, settings=settings).record.best
    assert best.validation_loss < 0.6
    assert best.validation_accuracy >= 0.9


@pytest.mark.parametrize("epoch", [1, 2])
def test_resuming_gives_what_running_through_gives(train, tmp_path, epoch):
    reports = Reports(tmp_path / "kept")
    straight = train("straight", report=reports)
    rest = Reports()
    resumed = train("resumed", resume_from=tmp_path / "kept" / f"epoch-{epoch}", report=rest)
    assert [report.metrics.epoch for report in rest] == list(range(epoch + 1, 4))
    assert_same_weights(straight.folder, resumed.folder)
    assert without_seconds(straight.record) == without_seconds(resumed.record)


def test_an_interrupted_epoch_can_be_resumed_in_its_own_folder(train):
    reports = Reports(stop_after=2)
    with pytest.raises(KeyboardInterrupt):
        train("interrupted", report=reports)
    resumed = train("interrupted", resume_from=reports[-1].checkpoint)
    assert_same_weights(resumed.folder, train("straight").folder)


def test_resuming_with_other_settings_is_refused(train, settings, tmp_path):
    train(report=Reports(tmp_path / "kept"))
    other = dataclasses.replace(settings, learning_rate=1e-4)
    with pytest.raises(CheckpointError, match="made with other data, settings, adapter or backbone"):
        train("other", settings=other, resume_from=tmp_path / "kept" / "epoch-1")


def test_training_stops_when_validation_gets_no_better(train, groups, settings):
    """Validation pairs that contradict the training pairs: the first epoch stays the best."""
    reversed_pairs = [dataclasses.replace(group, pairs=((1, 0), (2, 0))) for group in groups[1]]
    reports = Reports()
    settings = dataclasses.replace(settings, patience=2, max_epochs=10, learning_rate=1e-2)
    result = train(validation=reversed_pairs, settings=settings, report=reports)
    assert [report.is_last for report in reports] == [False, False, True]
    assert [report.is_best for report in reports] == [True, False, False]
    assert result.record.best_epoch == 1


def test_the_learning_rate_falls_over_the_planned_epochs(train, settings):
    """Two epochs of four steps, one of the eight to warm up: the last step is at 6/7 of the cosine."""
    result = train(settings=dataclasses.replace(settings, max_epochs=2, patience=9, learning_rate=1e-3))

    assert result.record.epochs[-1].learning_rate == pytest.approx(1e-3 * 0.5 * (1 + math.cos(math.pi * 6 / 7)))


def test_the_best_epochs_weights_are_kept(train, groups, settings, tmp_path):
    reversed_pairs = [dataclasses.replace(group, pairs=((1, 0), (2, 0))) for group in groups[1]]
    settings = dataclasses.replace(settings, patience=2, learning_rate=1e-2)
    result = train(validation=reversed_pairs, settings=settings, report=Reports(tmp_path / "kept"))
    first = load_file(tmp_path / "kept" / "epoch-1" / "member.safetensors")
    stored = weights(result.folder)
    assert torch.equal(stored["head.safetensors"]["hidden.weight"], first["head.hidden.weight"])
    key = "base_model.model.layers.0.attn.Wqkv.lora_A.weight"
    assert torch.equal(stored["adapter_model.safetensors"][key], first[f"lora.{key}"])


def test_each_report_has_a_checkpoint_and_only_the_last_is_kept(train):
    seen = []
    result = train(report=lambda report: seen.append(sorted(path.name for path in report.checkpoint.parent.iterdir())))
    assert seen == [["epoch-1"], ["epoch-2"], ["epoch-3"]]
    assert sorted(path.name for path in result.folder.iterdir()) == [
        "adapter_config.json", "adapter_model.safetensors", "head.safetensors", "training.json",
    ]  # fmt: skip


def test_the_record_tells_how_it_was_trained(train, tiny):
    record = read_adapter(train().folder).record
    assert record.adapter == A0
    assert record.backbone_fingerprint == tiny["modernbert"].fingerprint
    assert (record.num_train_problems, record.num_train_pairs) == (16, 32)
    assert (record.num_validation_problems, record.num_validation_pairs) == (6, 12)
    assert record.settings["learning_rate"] == 3e-3


@pytest.mark.parametrize(("max_length", "is_told"), [(5, True), (9, False)])
def test_it_is_told_where_most_answers_do_not_fit(train, settings, caplog, max_length, is_told):
    """Two words after three special tokens, and a third of them is none; answers of each problem have two, three and
    four words."""
    train(settings=dataclasses.replace(settings, max_length=max_length, max_epochs=1))

    assert ("adapter a0: 44 of 66 answers do not fit into the 5 tokens" in caplog.text) is is_told


def test_a_loss_that_is_no_number_names_adapter_epoch_step_and_way_out(train, settings):
    """A gigantic step throws the weights out of float32's range."""
    settings = dataclasses.replace(settings, learning_rate=1e30)
    with pytest.raises(TrainingError, match=r"a0: epoch 1, step \d of 4: .*try a lower training\.learning_rate"):
        train(settings=settings)


def test_an_empty_bag_is_refused(train):
    with pytest.raises(PoolError, match="adapter 'a0': nothing to train on"):
        train(train=[])


@pytest.mark.parametrize(
    ("share", "expected"), [(1.0, 0.3), (0.5, 0.3), (0.25, 0.15), (0.1, 0.06)], ids=["a-gpu-each", "two", "four", "ten"]
)
def test_all_workers_of_a_gpu_take_at_most_60_percent_for_graphs(monkeypatch, settings, share, expected):
    monkeypatch.setattr("torch.cuda.get_device_properties", lambda device: SimpleNamespace(total_memory=1000))
    settings = dataclasses.replace(settings, gpu_share=share)
    assert graph_bytes(settings, torch.device("cuda")) == pytest.approx(1000 * expected)


def test_resuming_beside_more_workers_is_not_refused(train, settings, tmp_path):
    train(report=Reports(tmp_path / "kept"))
    settings = dataclasses.replace(settings, gpu_share=0.25, graph_gib=1.0)
    train("other", settings=settings, resume_from=tmp_path / "kept" / "epoch-1")


def test_a_full_gpu_names_adapter_epoch_and_way_out(train, monkeypatch):
    def full(self, batch):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    monkeypatch.setattr(EnsembleMember, "forward", full)
    way_out = r"a0: epoch 1: CUDA out of memory.*lower scorer\.micro_batch_tokens, or raise ray\.gpus_per_adapter"
    with pytest.raises(TrainingError, match=way_out):
        train()


def test_bfloat16_trains_on_the_cpu(train, settings):
    settings = dataclasses.replace(settings, dtype="bfloat16", max_epochs=6, learning_rate=1e-2)
    assert train(settings=settings).record.best.validation_loss < 0.6


def test_float16_is_for_gpus():
    with pytest.raises(ConfigError, match="float16 trains on GPUs only"):
        autocast_dtype("float16", torch.device("cpu"))


def group_of(name, num_pairs):
    return TrainingGroup(problem_id=name, prompt="", texts=("a", "b"), pairs=((0, 1),) * num_pairs)


def test_a_step_takes_whole_problems_until_it_has_its_pairs():
    sizes = zip("abcde", (3, 1, 5, 2, 1), strict=True)
    plan = plan_steps([Portion(group_of(name, size)) for name, size in sizes], batch_size=4)
    assert [[group.problem_id for group in step.groups] for step in plan] == [["a", "b"], ["c"], ["d", "e"]]
    assert [step.num_pairs for step in plan] == [4, 5, 3]


def test_a_problem_with_more_pairs_than_a_batch_is_cut_into_nearly_equal_parts():
    group = TrainingGroup(
        problem_id="p",
        prompt="x",
        texts=("good", "bad", "worse", "fine"),
        pairs=((0, 1), (0, 2), (3, 2), (3, 1), (0, 1)),
    )

    first, second = portions_of(group, batch_size=4)

    assert (first.group.texts, first.group.pairs, first.share) == (("good", "bad", "worse"), ((0, 1), (0, 2)), 0.4)
    assert second.group.texts == ("fine", "worse", "bad", "good")
    assert (second.group.pairs, second.share) == (((0, 1), (0, 2), (3, 2)), 0.6)


def test_parts_are_steps_of_their_own_and_count_by_their_share():
    portions = [Portion(group_of("a", 2)), *portions_of(group_of("b", 16), batch_size=8), Portion(group_of("c", 6))]

    plan = plan_steps(portions, batch_size=8)

    assert [[group.problem_id for group in step.groups] for step in plan] == [["b"], ["b"], ["a", "c"]]
    assert [step.num_pairs for step in plan] == [8, 8, 8]
    assert [step.num_problems for step in plan] == [0.5, 0.5, 2.0]


def test_the_papers_steps_for_musr():
    """544 usable problems of 16 pairs in batches of 8: 8,704 pairs, 1,088 steps."""
    portions = [part for index in range(544) for part in portions_of(group_of(f"p{index}", 16), batch_size=8)]
    assert {step.num_pairs for step in plan_steps(portions, batch_size=8)} == {8}
    assert len(plan_steps(portions, batch_size=8)) == 1088


def test_the_reported_loss_is_the_mean_over_pairs_then_problems_however_steps_are_cut(train, settings):
    """A learning rate that moves nothing: every step's loss is that of the untrained head, ln 2."""
    settings = dataclasses.replace(settings, learning_rate=1e-12, max_epochs=1)
    losses = [
        train(settings=dataclasses.replace(settings, batch_size=size)).record.epochs[0].train_loss for size in (1, 1000)
    ]
    assert losses == pytest.approx([math.log(2)] * 2, abs=1e-6)


@pytest.mark.parametrize(
    ("step", "expected"),
    [(0, 0.5), (1, 1.0), (2, 1.0), (11, 0.5), (19, 0.5 * (1 + math.cos(math.pi * 17 / 18)))],
    ids=["first", "warm", "cosine-starts", "half-way", "last"],
)
def test_the_learning_rate_rises_over_a_tenth_and_falls_as_a_cosine(step, expected):
    assert learning_rate_factor(step, num_steps=20, warmup_frac=0.1) == pytest.approx(expected)


@pytest.fixture
def one_step(train, settings, tmp_path):
    """One optimiser step on all problems at a learning rate of 0.1: (stored head, first moments of all weights)."""

    def call(folder, **changes):
        at_once = {"max_epochs": 1, "batch_size": 1000, "warmup_frac": 0.0, "learning_rate": 0.1}
        kept = tmp_path / f"{folder}-kept"
        train(folder, settings=dataclasses.replace(settings, **at_once | changes), report=Reports(kept))
        moments = load_file(kept / "epoch-1" / "optimizer.safetensors")
        first = [moment.flatten() for name, moment in moments.items() if name.endswith(".exp_avg")]
        return weights(tmp_path / folder)["head.safetensors"], torch.cat(first)

    return call


def test_weights_decay_beside_the_gradient_and_not_within_it(one_step):
    """The last layer starts at 0, so that no gradient reaches the layer before it: a step of AdamW multiplies it by
    1 - 0.1 * 0.5, where Adam would move each weight by the whole learning rate."""
    plain, _ = one_step("plain", weight_decay=0.0)
    decayed, _ = one_step("decayed", weight_decay=0.5)

    torch.testing.assert_close(decayed["hidden.weight"], 0.95 * plain["hidden.weight"], rtol=1e-5, atol=0)


def test_a_gradient_is_clipped_to_its_greatest_norm(one_step):
    """The first moment after one step is a tenth of the gradient."""
    _, clipped = one_step("clipped", max_grad_norm=1e-3)
    _, whole = one_step("whole", max_grad_norm=1e6)

    assert float(clipped.norm()) == pytest.approx(1e-4, rel=1e-3)
    torch.testing.assert_close(clipped / clipped.norm(), whole / whole.norm(), rtol=1e-4, atol=1e-6)


def test_training_drops_out_what_the_head_s_last_layer_reads(one_step):
    """At a rate of 1 nothing reaches the last layer, whose weights stay at 0."""
    dropped, _ = one_step("dropped", head_dropout=1.0)
    kept, _ = one_step("kept", head_dropout=0.0)

    assert not dropped["out.weight"].any()
    assert kept["out.weight"].all()


def test_the_data_fingerprint_follows_texts_and_pairs(groups):
    train, _ = groups
    copied = [dataclasses.replace(group) for group in train]
    changed = [dataclasses.replace(train[0], pairs=((0, 1),)), *train[1:]]
    assert data_fingerprint(copied) == data_fingerprint(train)
    assert data_fingerprint(changed) != data_fingerprint(train)


DEFAULTS = TaskDefaults(max_length=1536, batch_size=16, patience=3, learning_rate=2e-5)
GENERATORS = [{"kind": "recorded", "name": "g", "pool": "x", "model": "y"}]


def test_settings_come_from_the_task_where_the_recipe_is_silent():
    recipe = parse_recipe({"name": "r", "task": {"name": "t"}, "generators": GENERATORS, "seed": 4})
    settings = TrainingSettings.from_recipe(recipe, DEFAULTS)
    assert dataclasses.asdict(settings) == {
        "max_length": 1536, "batch_size": 16, "patience": 3, "learning_rate": 2e-5, "max_epochs": 10,
        "weight_decay": 0.01, "warmup_frac": 0.1, "max_grad_norm": 1.0, "head_dropout": 0.2, "pooling": "cls",
        "reasoning": "answer", "dtype": "auto", "micro_batch_tokens": 8192, "graph_gib": None, "gpu_share": 1.0,
        "seed": 4,
    }  # fmt: skip
