"""Ensembles of several backbones: a0 and a1 on one encoder, d0 on a decoder, m0 on a wider encoder."""

import json
from dataclasses import replace

import pytest
import torch

from raydebm.config import AdapterConfig
from raydebm.confounding.features import FeatureExtractor
from raydebm.confounding.refit import RepairSettings, RepairText, repair_heads
from raydebm.errors import CheckpointError
from raydebm.run.ensemble_file import backbone_names, read_ensemble_file
from raydebm.scorer.checkpoint import read_ensemble, write_ensemble
from raydebm.scorer.ensemble import EnsembleScorer, head_of
from raydebm.scorer.member_groups import group_members, load_backbones
from raydebm.scorer.model.backbone import frozen_weights, load_backbone
from raydebm.scorer.training.adapter import train_adapter
from raydebm.scorer.training.adapter_data import AdapterData

MINI = "embedded:encoder-mini"
ORDER = ("a0", "d0", "a1", "m0")
TEXTS = [
    ("w1 w2 w3", "w4 right"),
    ("w1 w2 w3", "w9 w8 w7 wrong"),
    ("w40 w41 w42 w43 w44 w45 w46 w47 w48 w49", "w1 w2 w3 w4 w5 w6 w7 right"),
]


@pytest.fixture(scope="module")
def members(tiny, groups, settings, tmp_path_factory):
    """name -> adapter folder"""
    folder = tmp_path_factory.mktemp("members")
    settings = replace(settings, max_epochs=1, learning_rate=1e-2, scaled=True)
    mini = load_backbone(MINI, device="cpu", dtype="float32")
    plan = {
        "a0": (tiny["modernbert"], settings),
        "a1": (tiny["modernbert"], settings),
        "d0": (tiny["llama"], replace(settings, pooling="last", max_length=18)),
        "m0": (mini, replace(settings, pooling="mean")),
    }
    return {
        name: train_adapter(
            AdapterConfig(name=name, rank=2, alpha=4, targets=("Wqkv",)),
            AdapterData(train=groups[0][:6], validation=groups[1]),
            backbone=backbone,
            settings=own,
            out_dir=folder / name,
            report=lambda report: None,
        ).folder
        for name, (backbone, own) in plan.items()
    }


@pytest.fixture(scope="module")
def checkpoint(members, tmp_path_factory):
    folder = tmp_path_factory.mktemp("mixed") / "scorer"
    write_ensemble(folder, {name: members[name] for name in ORDER}, {"run": "test"})
    return folder


@pytest.fixture(scope="module")
def scorer(checkpoint):
    return EnsembleScorer.load(checkpoint, device="cpu", dtype="float32")


def alone(members, names, folder):
    """Energies of an ensemble of these members, all of one backbone: one row per text."""
    write_ensemble(folder, {name: members[name] for name in names}, {})
    return [text.members for text in EnsembleScorer.load(folder, device="cpu", dtype="float32").score(TEXTS)]


def test_each_member_gives_the_energies_that_it_gives_among_members_of_its_own_backbone(scorer, members, tmp_path):
    of_a = alone(members, ("a0", "a1"), tmp_path / "a")
    of_d, of_m = (alone(members, (name,), tmp_path / name) for name in ("d0", "m0"))

    energies = [text.members for text in scorer.score(TEXTS)]

    assert scorer.adapters == ORDER
    assert energies == [(a0, d0, a1, m0) for (a0, a1), (d0,), (m0,) in zip(of_a, of_d, of_m, strict=True)]


def test_some_members_can_be_asked(scorer):
    everything = [text.members for text in scorer.score(TEXTS)]

    energies = [text.members for text in scorer.asking([False, True, False, True]).score(TEXTS)]

    assert energies == [(d0, m0) for _, d0, _, m0 in everything]


def test_members_of_one_backbone_share_it_and_their_texts(checkpoint):
    record, adapters = read_ensemble(checkpoint)
    backbones = load_backbones(record, device="cpu", dtype="float32")
    groups = group_members(record, adapters, backbones)

    assert [group.positions for group in groups] == [(0, 2), (1,), (3,)]
    assert [backbone.name for backbone in backbones] == [MINI, *record.backbones[:2]]  # the widest first


def test_members_of_one_backbone_that_read_different_lengths_share_its_weights_alone(members, tiny, tmp_path):
    write_ensemble(tmp_path / "scorer", {name: members[name] for name in ("a0", "a1")}, {})
    record, adapters = read_ensemble(tmp_path / "scorer")
    first, second = record.members
    record = record.model_copy(update={"members": (first, second.model_copy(update={"max_length": 24}))})

    one, other = group_members(record, adapters, [tiny["modernbert"]])

    assert one.backbone is other.backbone
    assert (one.positions, other.positions) == ((0,), (1,))


def test_backbones_in_memory_are_taken_where_they_are_the_members(checkpoint, tiny):
    record, _ = read_ensemble(checkpoint)

    backbones = load_backbones(record, device="cpu", dtype="float32", loaded=[tiny["bert"], tiny["llama"]])

    assert [backbone is tiny["llama"] for backbone in backbones] == [False, False, True]


def test_a_backbone_in_memory_is_not_taken_in_another_type(checkpoint, tiny):
    record, _ = read_ensemble(checkpoint)

    backbones = load_backbones(record, device="cpu", dtype="bfloat16", loaded=[tiny["llama"]])

    assert {backbone.dtype for backbone in backbones} == {"bfloat16"}


def test_mapped_weights_of_each_backbone_give_the_same_energies(scorer, checkpoint):
    weights = {name: frozen_weights(name) for name in scorer.record.backbones}

    mapped = EnsembleScorer.load(checkpoint, device="cpu", dtype="float32", weights=weights)

    assert mapped.score(TEXTS) == scorer.score(TEXTS)


def test_the_longest_reading_of_a_text_and_its_greatest_cut_are_counted(scorer):
    """Ten words and eight: 21 tokens with [CLS] and two [SEP] on the encoder; with EOS 19 on the decoder, which reads
    18."""
    (text,) = scorer.asking([True, True, False, False]).score(TEXTS[2:])

    assert (text.num_tokens, text.num_truncated) == (21, 1)


def test_the_choice_by_few_members_is_that_of_all_where_all_texts_stay(scorer):
    energies = [sum(text.members) for text in scorer.score(TEXTS)]

    assert scorer.lowest(TEXTS, first=2, share=1.0) == energies.index(min(energies))


def test_ensemble_json_says_the_backbone_of_every_member(checkpoint, tiny_folders):
    ensemble = read_ensemble_file(str(checkpoint))

    assert [(member["name"], member["backbone"]) for member in ensemble["members"]] == [
        ("a0", str(tiny_folders["modernbert"])),
        ("d0", str(tiny_folders["llama"])),
        ("a1", str(tiny_folders["modernbert"])),
        ("m0", MINI),
    ]
    assert backbone_names(ensemble) == (str(tiny_folders["modernbert"]), str(tiny_folders["llama"]), MINI)


def test_the_card_says_which_member_is_on_which_backbone(checkpoint, tiny_folders):
    card = (checkpoint / "README.md").read_text()

    assert f"a0, a1 on the frozen backbone `{tiny_folders['modernbert']}`" in card
    assert f"d0 on the frozen backbone `{tiny_folders['llama']}`" in card
    assert "Inputs of up to 48 or 18 tokens" in card


def test_an_ensemble_of_format_1_is_read(members, tmp_path):
    """It said once for all members what their backbone is."""
    expected = alone(members, ("a0", "a1"), tmp_path)
    file = tmp_path / "ensemble.json"
    tree = json.loads(file.read_text())
    first, _ = tree.pop("members")
    names = ("backbone", "backbone_fingerprint", "family", "hidden_size", "max_length", "pooling")
    shared = {name: first[name] for name in names}
    for name in ("a0", "a1"):
        record = tmp_path / name / "training.json"
        plain = {key: value for key, value in json.loads(record.read_text()).items() if key not in ("scale", "offset")}
        record.write_text(json.dumps(plain))
    file.write_text(json.dumps({**tree, "format": 1, "adapters": ["a0", "a1"], **shared}))

    old = EnsembleScorer.load(tmp_path, device="cpu", dtype="float32")

    assert [text.members for text in old.score(TEXTS)] == expected


def test_a_member_on_other_weights_is_named(checkpoint, tiny):
    record, adapters = read_ensemble(checkpoint)
    given = [tiny["modernbert"], replace(tiny["llama"], fingerprint="other")]

    with pytest.raises(
        CheckpointError, match=r"trained on backbone '.*llama' .*\(adapter 'd0'\), but '.*' has weights o"
    ):
        EnsembleScorer.of_parts(record, adapters, backbones=given)


def test_members_that_name_one_backbone_have_its_one_set_of_weights(members, tmp_path):
    file = members["a1"] / "training.json"
    before = file.read_text()
    file.write_text(json.dumps(json.loads(before) | {"backbone_fingerprint": "other"}))

    with pytest.raises(CheckpointError, match=r"backbone_fingerprint is '.*' in a0 and 'other' in a1"):
        write_ensemble(tmp_path / "mixed", {name: members[name] for name in ("a0", "d0", "a1")}, {})
    file.write_text(before)


@pytest.fixture(scope="module")
def extractor(checkpoint):
    return FeatureExtractor.load(checkpoint, device="cpu", dtype="float32")


def test_features_through_the_heads_are_the_energies(extractor, scorer):
    with torch.no_grad():
        energies = [
            head_of(adapter, hidden_size=states.shape[1])(states).tolist()
            for adapter, states in zip(extractor.adapters, extractor.states(TEXTS), strict=True)
        ]

    for place in range(len(ORDER)):
        assert energies[place] == pytest.approx([text.members[place] for text in scorer.score(TEXTS)], abs=1e-5)


def test_kept_features_give_the_energies_and_stand_side_by_side(extractor, checkpoint, scorer):
    for energies, expected in zip(extractor.scorer(checkpoint).score(TEXTS), scorer.score(TEXTS), strict=True):
        assert energies.members == pytest.approx(expected.members, abs=1e-5)
    assert extractor.joined(TEXTS).shape == (3, 3 * 32 + 128)


def test_every_head_can_be_refitted(extractor, checkpoint, tmp_path):
    texts = [
        RepairText(
            candidate_id="",
            problem_id=f"p{number}",
            prompt=f"w{number}",
            text=f"w{number} {'right' if correct else 'wrong'}",
            generator=generator,
            correct=correct,
        )
        for number in range(8)
        for generator in ("g", "h")
        for correct in (True, False)
    ]
    result = repair_heads(extractor, tmp_path / "repaired", train=texts, settings=RepairSettings(max_epochs=2))

    assert [head.adapter for head in result.heads] == list(ORDER)
    assert result.record.backbones == read_ensemble(checkpoint)[0].backbones
    assert {(member.scale, member.offset) for member in result.record.members} == {(1.0, 0.0)}
    assert len(EnsembleScorer.load(result.folder, device="cpu").score(TEXTS)[0].members) == 4
