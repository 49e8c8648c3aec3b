"""A fitted policy under another promise, certified on the labelled problems that it was fitted on."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from raydebm.decision.guarantee.guarantee import Guarantee, certify, no_floor
from raydebm.decision.policy import Policy
from raydebm.errors import ConfigError


def with_promise(
    policy: Policy,
    confidence_of: Sequence[float | None],
    worth: Sequence[float],
    *,
    max_error: float,
    confidence: float,
    floor: float | None = None,
    outcomes: Mapping[str, Any] | None = None,
) -> Policy:
    """Certify another error, and answer from its threshold on; where nothing is certified, only what is proven.

    Args:
        policy: fitted; has a posterior.
        confidence_of: cross-fitted confidence of each labelled problem's selection, None where nothing is selected, as
            ``calibration/decision.json`` has it.
        worth: of these selections, in [0, 1].
        max_error: largest mean loss of what is answered.
        confidence: with which the promise holds.
        floor: nothing is promised by thresholds below it, as ``calibration/decision.json`` has it; None: any may be.
        outcomes: where the problems come from, if users reported on them.

    Raises:
        ConfigError: the policy has no posterior, there is no labelled problem, the labels chose ``tau_accept`` and so
            cannot test a promise about it, or the threshold would change where sampling ends, so that problems must be
            walked again.
    """
    if policy.posterior is None:
        raise ConfigError("--max-error needs a policy with a posterior, and this one has none; run `raydebm calibrate`")
    if not len(worth):
        raise ConfigError("--max-error needs labelled problems, and the calibration has none; run `raydebm calibrate`")
    if policy.max_passes > 1 and policy.guarantee is None:
        raise ConfigError(
            "the labels chose where this policy of several passes stops, and so cannot test a promise about it; run "
            f"`raydebm calibrate --max-error {max_error:g}`, which chooses tau_accept by confidences alone"
        )
    known = np.array([-math.inf if value is None else value for value in confidence_of])
    binary = policy.posterior.outcome == "correct"
    promise = certify(
        known,
        1 - np.array(worth),
        max_error=max_error,
        confidence=confidence,
        binary=binary,
        floor_at=no_floor if floor is None else lambda tau: floor,
    )
    promising = promised(policy.replaced(rule="posterior"), promise)
    if outcomes is not None:
        promising = promising.replaced(guarantee={**(promising.guarantee or {}), "outcomes": dict(outcomes)})
    if promising.tau_accept > policy.tau_accept and (policy.max_passes > 1 or policy.waves is not None):
        raise ConfigError(
            f"an error of {max_error:g} needs a threshold of {promising.tau_answer:.4g}, above the policy's tau_accept "
            f"{policy.tau_accept:.4g}, which changes where sampling ends; run `raydebm calibrate --max-error "
            f"{max_error:g}` and replay its policy"
        )
    return promising


def promised(policy: Policy, promise: Guarantee) -> Policy:
    """The policy that answers from the promise's threshold on; where nothing is certified, only what is proven.

    ``tau_accept`` is at least ``tau_answer``, so the threshold may raise it. The guarantee lists all thresholds that
    were certified, for a request may answer from another one of them on.
    """
    tau = 1.0 if promise.tau is None else promise.tau
    return policy.replaced(
        tau_answer=tau,
        tau_accept=max(policy.tau_accept, tau),
        guarantee={**promise.summary(), "tau": tau, "thresholds": promise.certified_thresholds},
    )
