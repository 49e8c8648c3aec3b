"""Reward functions for reinforcement learning, computed by a running service.

    from raydebm_client import Raydebm
    from raydebm_client.rewards import grpo_reward

    trainer = GRPOTrainer(..., reward_funcs=grpo_reward(Raydebm(), task="support", reward="log_odds", sigma_weight=0.5))

``grpo_reward`` makes a function for TRL's GRPO trainer; ``compute_score`` and ``compute_scores`` are custom reward
functions for verl, for one response and for a batch. An unavailable service raises ServiceError, because a made-up
reward would be learned. Imports no trainer.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from raydebm_client.client import Raydebm

Text = str | Sequence[Mapping[str, Any]]
"""A text, or a chat: messages with ``role`` and ``content``."""


def grpo_reward(client: Raydebm, *, name: str = "raydebm", **settings: Any) -> Callable[..., list[float]]:
    """A reward function for TRL's ``GRPOTrainer(reward_funcs=...)``.

    Args:
        client: client of the service.
        name: name of the reward in the trainer's logs.
        settings: as in ``Raydebm.rewards``.

    Returns:
        ``(prompts, completions, **columns) -> rewards``. In a chat, the last user message is the problem. The trainer
        sends
        the completions of one prompt together, so ``reward="log_odds"`` counts their agreement as evidence. Other
        columns of
        the dataset, such as a gold answer, are ignored.
    """

    def reward(prompts: Sequence[Text], completions: Sequence[Text], **columns: Any) -> list[float]:
        return client.rewards(
            [_last_text(prompt, "user") for prompt in prompts],
            [_last_text(completion, "assistant") for completion in completions],
            **settings,
        )

    reward.__name__ = name
    return reward


def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: Any,
    extra_info: Mapping[str, Any] | None = None,
    *,
    base_url: str | None = None,
    question_key: str = "question",
    **settings: Any,
) -> float:
    """verl's custom reward function for one response.

    Name this file in ``custom_reward_function.path``, with the keyword arguments in
    ``custom_reward_function.reward_kwargs``. Unlike in ``compute_scores``, responses are not evidence for each other.

    Args:
        data_source: ignored; ``task`` selects the constraints.
        solution_str: the response.
        ground_truth: ignored; the reward needs no reference answer.
        extra_info: extra columns of the dataset's row, with the problem's text, which verl does not pass otherwise.
        base_url: address of the service. Default: RAYDEBM_BASE_URL, else http://127.0.0.1:8000.
        question_key: key of the problem's text in ``extra_info``.
        settings: as in ``Raydebm.rewards``.

    Raises:
        ValueError: ``extra_info`` has no such text.
        ServiceError: the service refuses or cannot answer.
    """
    question = _question(extra_info, question_key)
    return _client(base_url, os.getpid()).rewards([question], [solution_str], **settings)[0]


def compute_scores(
    data_sources: Sequence[str],
    solution_strs: Sequence[str],
    ground_truths: Sequence[Any],
    extra_infos: Sequence[Mapping[str, Any] | None],
    *,
    base_url: str | None = None,
    question_key: str = "question",
    **settings: Any,
) -> list[float]:
    """``compute_score`` for verl's batch reward manager.

    All responses of a batch are sent together, so that ``reward="log_odds"`` counts the agreement of a prompt's
    responses as evidence.
    """
    questions = [_question(extra_info, question_key) for extra_info in extra_infos]
    return _client(base_url, os.getpid()).rewards(questions, list(solution_strs), **settings)


@lru_cache(maxsize=8)
def _client(base_url: str | None, process_id: int) -> Raydebm:
    """One client per process: a forked worker must not write to its parent's connections."""
    return Raydebm(base_url)


def _question(extra_info: Mapping[str, Any] | None, key: str) -> str:
    question = (extra_info or {}).get(key)
    if not isinstance(question, str):
        raise ValueError(
            f"extra_info has no text {key!r}, got {question!r}; put the problem's text there in the dataset, or name "
            "another key in custom_reward_function.reward_kwargs.question_key"
        )
    return question


def _last_text(value: Text, role: str) -> str:
    """The text itself; for a chat, the content of the role's last message, or "" without one."""
    if isinstance(value, str):
        return value
    contents = [message.get("content") for message in value if message.get("role", role) == role]
    content = contents[-1] if contents else None
    if isinstance(content, str) or content is None:
        return content or ""
    return "".join(str(part["text"]) for part in content if part.get("type") == "text")
