"""Sampling from an embedded generator, to measure it."""

from collections.abc import Sequence
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase

from raydebm.records import Message


@torch.inference_mode()
def sample_texts(
    model: Any,
    tokenizer: PreTrainedTokenizerBase,
    chats: Sequence[Sequence[Message]],
    *,
    seed: int,
    max_tokens: int = 256,
    temperature: float = 0.7,
    top_p: float = 0.95,
) -> list[str]:
    """Sample one completion per chat, in one batch with one seed.

    Args:
        model: a causal model of ``transformers``, in evaluation mode.
    """
    prompts = [
        tokenizer.apply_chat_template([dict(message) for message in chat], tokenize=False, add_generation_prompt=True)
        for chat in chats
    ]
    inputs = tokenizer(prompts, return_tensors="pt", padding=True, add_special_tokens=False)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        tokens = model.generate(
            input_ids=inputs["input_ids"],
            attention_mask=inputs["attention_mask"],
            do_sample=True,
            temperature=temperature,
            top_p=top_p,
            top_k=0,
            max_new_tokens=max_tokens,
            pad_token_id=tokenizer.pad_token_id,
            eos_token_id=tokenizer.eos_token_id,
        )
    completions = tokens[:, inputs["input_ids"].shape[1] :]
    return tokenizer.batch_decode(completions, skip_special_tokens=True)
