"""The unit of energies: shift and scale by the validation problems."""

import math
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from raydebm.config import PAPER_ADAPTERS
from raydebm.scorer.training.adapter import train_adapter
from raydebm.scorer.training.adapter_data import AdapterData
from raydebm.scorer.training.energy_scale import EnergyScale, fit_scale
from raydebm.scorer.training.loss import bradley_terry_loss, listwise_loss, step_pairs


def fitted(gaps, *, level=0.0, loss_of=bradley_terry_loss):
    """One pair per problem: the chosen text lies ``gap`` below the rejected one, both around a level."""
    energies = torch.tensor([level + sign * gap / 2 for gap in gaps for sign in (-1, 1)])
    pairs = step_pairs([(f"p{number}", 2, [(0, 1)]) for number in range(len(gaps))], device=torch.device("cpu"))
    return fit_scale(energies, pairs, loss_of=loss_of, num_problems=len(gaps))


def test_the_scale_makes_the_gap_the_log_odds_of_the_order():
    """Three of four pairs are in order by a gap of 1: the log odds are ln 3."""
    fit = fitted([1.0, 1.0, 1.0, -1.0] * 200)

    assert fit.scale == pytest.approx(math.log(3), abs=0.003)


def test_a_member_with_larger_numbers_gets_a_smaller_scale():
    small, large = fitted([1.0, 1.0, 1.0, -1.0] * 200), fitted([8.0, 8.0, 8.0, -8.0] * 200)

    assert 8 * large.scale == pytest.approx(small.scale, rel=0.02)  # the prior pulls both towards 1


def test_the_offset_is_the_mean_energy_of_the_texts():
    fit = fitted([1.0, -1.0], level=7.0)

    assert fit.offset == pytest.approx(7.0)
    assert fit.scale * (7.0 - fit.offset) == pytest.approx(0.0)
    assert fit.shift == pytest.approx(-7.0 * fit.scale)


def test_the_scale_stays_finite_where_all_pairs_are_in_order():
    """ln(1 + e^-s) + (ln s)^2 / 2 is lowest where ln s = s / (1 + e^s), at 1.321; without the prior at infinity."""
    assert fitted([1.0]).scale == pytest.approx(1.321, abs=1e-3)


def test_the_listwise_loss_of_two_candidates_has_the_same_scale():
    gaps = [1.0, 1.0, -1.0]

    assert fitted(gaps, loss_of=listwise_loss).scale == pytest.approx(fitted(gaps).scale, abs=1e-4)


@pytest.fixture(scope="module")
def folders(tiny, groups, settings, tmp_path_factory):
    """The same training as it is, scaled, and scaled without validation problems."""
    folder = tmp_path_factory.mktemp("scaled")
    plan = {"plain": (False, groups[1]), "scaled": (True, groups[1]), "blind": (True, [])}
    return {
        name: train_adapter(
            PAPER_ADAPTERS[0],
            AdapterData(train=groups[0], validation=validation),
            backbone=tiny["modernbert"],
            settings=replace(settings, max_epochs=1, scaled=scaled),
            out_dir=folder / name,
            report=lambda report: None,
        )
        for name, (scaled, validation) in plan.items()
    }


def test_the_heads_last_layer_holds_the_scale(folders):
    record = folders["scaled"].record
    plain, scaled = (load_file(folders[name].folder / "head.safetensors") for name in ("plain", "scaled"))

    assert record.scale != 1
    assert torch.equal(scaled["hidden.weight"], plain["hidden.weight"])
    torch.testing.assert_close(scaled["out.weight"], record.scale * plain["out.weight"])
    torch.testing.assert_close(scaled["out.bias"], record.scale * (plain["out.bias"] - record.offset))


@pytest.mark.parametrize("name", ["plain", "blind"])
def test_nothing_is_scaled_with_one_backbone_or_without_validation_problems(folders, name):
    record = folders[name].record

    assert EnergyScale(scale=record.scale, offset=record.offset) == EnergyScale()
