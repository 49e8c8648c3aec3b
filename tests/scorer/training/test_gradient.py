import pytest
import torch
from torch.nn.functional import softplus

from raydebm.config import AdapterConfig
from raydebm.scorer.model.batching import micro_batches, pad
from raydebm.scorer.training.gradient import backward
from raydebm.scorer.training.loss import step_pairs
from raydebm.scorer.training.member import EnsembleMember

GROUPS = [("p", 3, [(0, 1), (0, 2), (1, 2)]), ("q", 2, [(1, 0)])]
IDS = [(1, 5, 2, 6, 2), (1, 5, 2, 7, 8, 9, 10, 2), (1, 5, 2, 8, 2), (1, 11, 12, 2, 7, 2), (1, 11, 12, 2, 9, 5, 2)]
LONGEST_FIRST = [1, 3, 4, 0, 2]
NO_SCALE = torch.amp.GradScaler("cpu", enabled=False)


def make_member(backbone, *, dropout):
    adapter = AdapterConfig(name="x", rank=4, alpha=8, targets=("Wqkv", "Wo"), dropout=dropout)
    with torch.random.fork_rng():
        torch.manual_seed(3)
        member = EnsembleMember(backbone, adapter, head_dropout=dropout, autocast=None)
        for name, parameter in member.trainable():
            if "lora_B" in name or "out.weight" in name:
                torch.nn.init.normal_(parameter, std=0.3)
    return member.train()


def gradients(member):
    return {name: parameter.grad for name, parameter in member.trainable()}


def step(member, *, max_tokens=40, max_graph_bytes=2.0**30):
    batches = micro_batches(IDS, max_tokens=max_tokens, pad_id=0)
    with torch.random.fork_rng():
        torch.manual_seed(11)
        loss = backward(
            member, batches, step_pairs(GROUPS, device=member.device), scaler=NO_SCALE, max_graph_bytes=max_graph_bytes
        )
        return loss, gradients(member), torch.get_rng_state()


def pairwise(member):
    """The definition, one text per forward pass and two forward passes per pair."""

    def energy(position):
        return member(pad(IDS, positions=[position], pad_id=0))[0]

    losses, offset = [], 0
    for _, num_texts, pairs in GROUPS:
        terms = [softplus(energy(offset + chosen) - energy(offset + rejected)) for chosen, rejected in pairs]
        losses.append(torch.stack(terms).mean())
        offset += num_texts
    loss = torch.stack(losses).mean()
    loss.backward()
    return float(loss.detach()), gradients(member)


@pytest.mark.parametrize("family", ["modernbert", "deberta-v2", "bert"])
@pytest.mark.parametrize("max_graph_bytes", [2.0**30, 0.0], ids=["graphs-kept", "two-phases"])
def test_the_gradient_is_that_of_the_pairs_one_by_one(tiny, family, max_graph_bytes):
    expected_loss, expected = pairwise(make_member(tiny[family], dropout=0.0))
    loss, by_name, _ = step(make_member(tiny[family], dropout=0.0), max_graph_bytes=max_graph_bytes)
    assert loss == pytest.approx(expected_loss, rel=1e-5)
    assert by_name.keys() == expected.keys()
    for name, gradient in expected.items():
        torch.testing.assert_close(by_name[name], gradient, atol=1e-6, rtol=1e-4)
        # A shift of all energies changes no difference, so the last bias has no gradient.
        assert gradient.abs().max() > 0 or name == "head.out.bias"


def graph_bytes_of(member, *, texts):
    return member.graph_bytes([pad(IDS, positions=LONGEST_FIRST[:texts], pad_id=0)])


@pytest.mark.parametrize(("family", "per_token"), [("bert", 24 * 32), ("deberta-v2", 24 * 32 + 4 * 2 * 8)])
def test_a_graph_keeps_24_activations_per_token_and_layer_and_scores_of_eager_attention(tiny, family, per_token):
    """Two texts of 8 tokens, two layers of 32 with two heads, in float32."""
    member = make_member(tiny[family], dropout=0.0)

    assert member.graph_bytes([pad(IDS, positions=[1, 0], pad_id=0)]) == 2 * 8 * per_token * 2 * 4


def test_two_phases_draw_the_same_dropout(tiny):
    """Where each micro-batch fits by itself; cut ones draw their own."""
    member = make_member(tiny["bert"], dropout=0.3)
    loss, by_name, state = step(member, max_tokens=16)
    limit = graph_bytes_of(member, texts=2)
    loss_again, again, state_again = step(make_member(tiny["bert"], dropout=0.3), max_tokens=16, max_graph_bytes=limit)
    assert loss_again == pytest.approx(loss, rel=1e-6)
    assert torch.equal(state, state_again)
    for name, gradient in by_name.items():
        torch.testing.assert_close(again[name], gradient, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize(("texts", "expected"), [(5, [5]), (4, [2, 3]), (2, [2, 1, 2]), (1, [1] * 5), (0, [1] * 5)])
def test_no_piece_of_a_step_has_a_graph_above_the_limit_except_a_single_text(tiny, texts, expected):
    member = make_member(tiny["bert"], dropout=0.0)
    limit = graph_bytes_of(member, texts=texts) if texts else 0.0
    seen = []
    member.register_forward_pre_hook(lambda _, arguments: seen.append(arguments[0]))

    step(member, max_tokens=40, max_graph_bytes=limit)

    num_phases = 1 if texts == len(IDS) else 2
    assert [len(batch.positions) for batch in seen] == expected * num_phases
    assert all(member.graph_bytes([batch]) <= limit or len(batch.positions) == 1 for batch in seen)


def test_dropout_is_on_in_the_adapter_and_head_and_off_in_the_encoder(tiny):
    member = make_member(tiny["bert"], dropout=0.3)
    training = {name for name, module in member.named_modules() if module.training and "dropout" in name}
    assert training == {name for name in training if "lora_dropout" in name or name.startswith("head.")}
    assert "head.dropout" in training
    assert any("lora_dropout" in name for name in training)


def test_bfloat16_gives_nearly_the_same_loss(tiny):
    member = make_member(tiny["modernbert"], dropout=0.0)
    loss, _, _ = step(member)
    member._autocast = torch.bfloat16
    assert step(member)[0] == pytest.approx(loss, rel=0.05)
