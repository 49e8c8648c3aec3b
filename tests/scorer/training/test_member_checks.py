"""What is refused before an adapter is trained on a backbone that it does not fit."""

import pytest

from raydebm.config import AdapterConfig
from raydebm.errors import ConfigError
from raydebm.scorer.training.member import check_member


def check(backbone, *, pooling="mean", max_length=48, **changes):
    adapter = AdapterConfig(**{"name": "b0", "rank": 2, "alpha": 4, "targets": ("Wqkv",)} | changes)
    check_member(adapter, backbone, pooling=pooling, max_length=max_length)


def test_a_decoder_read_at_its_first_token_is_refused_naming_both(tiny):
    with pytest.raises(ConfigError, match=r"adapter 'b0': pooling is cls, .* decoder '.*llama' .*to last or mean"):
        check(tiny["llama"], pooling="cls")


def test_a_target_that_the_backbone_lacks_is_refused_naming_both(tiny):
    with pytest.raises(ConfigError, match=r"backbone '.*bert': adapter 'b0': target 'q_proj' is neither a role"):
        check(tiny["bert"], targets=("q_proj",))


def test_a_context_without_room_for_an_answer_is_refused(tiny):
    with pytest.raises(
        ConfigError, match=r"adapter 'b0': backbone '.*' reads 64 tokens and max_length is 8; .*at least 16"
    ):
        check(tiny["modernbert"], max_length=8)
