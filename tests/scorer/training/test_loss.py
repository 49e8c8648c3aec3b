import math

import pytest
import torch

from raydebm.errors import ScoringError
from raydebm.scorer.model.head import EnergyHead
from raydebm.scorer.training.loss import bradley_terry_loss, num_ordered, step_pairs

CPU = torch.device("cpu")


def softplus(value):
    return math.log1p(math.exp(value))


def test_loss_of_equal_energies_is_ln_2():
    pairs = step_pairs([("p", 2, [(0, 1)])], device=CPU)
    assert float(bradley_terry_loss(torch.zeros(2), pairs)) == pytest.approx(math.log(2))


def test_loss_is_the_mean_over_a_problems_pairs_then_over_problems():
    energies = torch.tensor([0.0, 1.0, 3.0, 2.0, -1.0])
    pairs = step_pairs([("p", 3, [(0, 1), (0, 2)]), ("q", 2, [(0, 1)])], device=CPU)
    expected = ((softplus(-1) + softplus(-3)) / 2 + softplus(3)) / 2
    assert float(bradley_terry_loss(energies, pairs)) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_loss_that_is_no_number_names_the_problem(bad):
    pairs = step_pairs([("p", 2, [(0, 1)]), ("q7", 2, [(0, 1)])], device=CPU)
    with pytest.raises(ScoringError, match="problem 'q7'"):
        bradley_terry_loss(torch.tensor([0.0, 0.0, bad, 0.0]), pairs)


def test_a_tie_is_not_ordered():
    pairs = step_pairs([("p", 3, [(0, 1), (0, 2), (2, 1)])], device=CPU)
    assert num_ordered(torch.tensor([1.0, 1.0, 0.5]), pairs) == 1


def test_the_head_has_the_papers_layers():
    d = 768
    layer_norm, hidden, out = 2 * d, d * d + d, d + 1
    assert sum(parameter.numel() for parameter in EnergyHead(d).parameters()) == layer_norm + hidden + out == 592_897


def test_the_head_starts_at_energy_zero():
    assert EnergyHead(8)(torch.randn(3, 8)).tolist() == [0.0, 0.0, 0.0]


def test_the_heads_energies_by_hand():
    """Of (1, 3): (-1, 1) after the norm, then 0.5 and 2 by the layer, then gelu(0.5) + 2 gelu(2) + 0.1."""
    head = EnergyHead(2).eval()
    with torch.no_grad():
        head.hidden.weight.copy_(torch.tensor([[0.5, 1.0], [-1.0, 1.0]]))
        head.hidden.bias.zero_()
        head.out.weight.copy_(torch.tensor([[1.0, 2.0]]))
        head.out.bias.fill_(0.1)
    gelu = [x * (1 + math.erf(x / math.sqrt(2))) / 2 for x in (0.5, 2.0)]

    assert float(head(torch.tensor([[1.0, 3.0]])).detach()) == pytest.approx(gelu[0] + 2 * gelu[1] + 0.1, abs=1e-4)


def test_the_head_drops_a_fifth_of_what_its_last_layer_reads_in_training_alone():
    head = EnergyHead(1000)
    with torch.no_grad():
        head.hidden.weight.zero_()
        head.hidden.bias.fill_(100.0)
        head.out.weight.fill_(0.01)
    texts = torch.zeros(20, 1000)
    torch.manual_seed(1)
    num_kept = head.train()(texts).detach() / 1.25

    assert head.eval()(texts).tolist() == pytest.approx([1000.0] * 20)
    assert torch.allclose(num_kept, num_kept.round(), atol=0.01)
    assert float(num_kept.mean()) == pytest.approx(800, abs=14)  # five standard errors
