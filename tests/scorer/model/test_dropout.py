import pytest
import torch
from torch import nn

from raydebm.scorer.model.dropout import ByteDropout, use_byte_dropout


def dropped(p, shape=(400, 501)):
    torch.manual_seed(3)
    return ByteDropout(p)(torch.ones(shape))


def test_a_rate_is_rounded_to_a_256th_and_the_rest_is_scaled_by_that_rate():
    module = ByteDropout(0.2)
    assert module.p == 51 / 256
    assert dropped(0.2).unique().tolist() == [0.0, pytest.approx(256 / 205)]


def test_the_share_of_zeros_is_the_rate():
    share = float((dropped(0.2) == 0).float().mean())
    assert share == pytest.approx(51 / 256, abs=0.005)  # 200,400 draws: five standard errors are 0.0045


def test_the_same_seed_draws_the_same_mask_and_the_next_draw_another():
    torch.manual_seed(3)
    module = ByteDropout(0.5)
    first, second = module(torch.ones(50)), module(torch.ones(50))
    assert torch.equal(first, dropped(0.5, (50,)))
    assert not torch.equal(first, second)


def test_gradients_pass_where_values_did():
    torch.manual_seed(3)
    values = torch.ones(100, requires_grad=True)
    out = ByteDropout(0.25)(values)
    out.sum().backward()
    assert torch.equal(values.grad, out.detach())


@pytest.mark.parametrize("module", [ByteDropout(0.5).eval(), ByteDropout(0.0)])
def test_nothing_is_dropped_in_eval_mode_or_at_rate_zero(module):
    values = torch.ones(10)
    assert module(values) is values


def test_only_dropouts_are_replaced():
    modules = nn.ModuleDict({"a": nn.Dropout(0.2), "b": nn.Identity()})
    use_byte_dropout(modules)
    assert isinstance(modules["a"], ByteDropout)
    assert isinstance(modules["b"], nn.Identity)
