"""A reward function for TRL's GRPO trainer, computed by a running service. Imports no trainer.

    trainer = GRPOTrainer(..., reward_funcs=grpo_reward(Raydebm(), task="support", reward="log_odds", sigma_weight=0.5))

If the service is unavailable, ServiceError is raised, because the trainer would learn from any substitute.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from raydebm_client.client import Raydebm

Text = str | Sequence[Mapping[str, Any]]
"""A text, or a chat: messages with ``role`` and ``content``."""


def grpo_reward(client: Raydebm, *, name: str = "raydebm", **settings: Any) -> Callable[..., list[float]]:
    """A reward function for TRL's ``GRPOTrainer(reward_funcs=...)``.

    Args:
        client: client of a service with the task.
        name: name of the reward in the trainer's logs.
        settings: settings of ``Raydebm.rewards``.

    Returns:
        ``(prompts, completions, **columns) -> rewards``. In a chat, the last user message is the problem. The trainer
        sends the completions of one prompt together, so ``reward="log_odds"`` counts their agreement as evidence. Other
        columns of the dataset, such as a gold answer, are ignored.
    """

    def reward(prompts: Sequence[Text], completions: Sequence[Text], **columns: Any) -> list[float]:
        return client.rewards(
            [_last_text(prompt, "user") for prompt in prompts],
            [_last_text(completion, "assistant") for completion in completions],
            **settings,
        )

    reward.__name__ = name
    return reward


def _last_text(value: Text, role: str) -> str:
    """The text itself; for a chat, the content of the role's last message, or "" without one."""
    if isinstance(value, str):
        return value
    contents = [message.get("content") for message in value if message.get("role", role) == role]
    content = contents[-1] if contents else None
    if isinstance(content, str) or content is None:
        return content or ""
    return "".join(str(part["text"]) for part in content if part.get("type") == "text")
