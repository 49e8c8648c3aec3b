"""Thresholds that follow from what a wrong answer, a refusal and a further pass cost, in units of one right answer.

An answer that is right with probability p gains g(p) = p - (1 - p) wrong, a refusal -refusal. So it is worth giving at

    p >= tau_answer = (wrong - refusal) / (1 + wrong)

and a further pass, which gains at most 1 - g(p), cannot pay for itself from p = 1 - pass / (1 + wrong) on.
"""

from raydebm.config import CostsConfig


def answer_threshold(costs: CostsConfig) -> float:
    """The probability from which an answer is worth giving, in [0, 1]."""
    return min(max((costs.wrong - costs.refusal) / (1 + costs.wrong), 0.0), 1.0)


def accept_limit(costs: CostsConfig) -> float:
    """The probability from which no further pass can pay for itself, in [0, 1]; at least ``answer_threshold``."""
    return max(1 - costs.pass_ / (1 + costs.wrong), answer_threshold(costs))
