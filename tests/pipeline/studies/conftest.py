"""A reward model that studies read."""

import pytest


@pytest.fixture(scope="module")
def reward_model(tmp_path_factory):
    """A folder with a small sequence classifier of random weights, as a hub would hold it."""
    import torch
    from transformers import AutoTokenizer, LlamaConfig, LlamaForSequenceClassification

    from raydebm.embedded import embedded_path

    folder = tmp_path_factory.mktemp("reward")
    tokenizer = AutoTokenizer.from_pretrained(embedded_path("kk-dee"))
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_labels=1,
        pad_token_id=tokenizer.pad_token_id,
    )
    LlamaForSequenceClassification(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
