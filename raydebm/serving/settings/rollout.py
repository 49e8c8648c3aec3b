"""Which of two policies answers a request.

The second policy of the run directory answers a share of the problems, its canary; about all the others, and for the
first policy about those of the canary, the one that does not answer decides as a shadow.

In:   the bundle, a problem, what the request changes.
Out:  an ``Assignment``.
Does not know: Ray, HTTP.
"""

from dataclasses import dataclass

from raydebm.decision.policy import LIMITS, Policy
from raydebm.decision.policy_history import SecondPolicy
from raydebm.decision.shadow import PolicyRole
from raydebm.identity import share_of
from raydebm.records import Problem
from raydebm.serving.settings.bundle import Bundle
from raydebm.serving.settings.overrides import Overrides


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """The two policies of one request."""

    role: PolicyRole
    """Which of them answers."""
    version: str
    """Id of the file of the policy that answers."""
    other: Policy
    """The one that does not, with the limits of the request."""
    other_version: str
    """Id of its file."""


def is_canary(second: SecondPolicy, problem: Problem) -> bool:
    """Whether the second policy answers this problem.

    Decided by a hash of the problem, so that a request that is sent again gets the same policy, on every replica. A
    larger share has all problems of a smaller one; another second policy has other problems.
    """
    return share_of("canary", second.version, problem.task, problem.problem_id) < second.percent / 100


def is_tried(bundle: Bundle, overrides: Overrides) -> bool:
    """Whether a request is decided by two policies: there is a second one, and the request changes nothing but its
    limits. What it changes would else be compared instead of the two policies."""
    named = bundle.profiles.get(overrides.policy or "", Overrides())
    changed = {**named.policy_changes(), **overrides.policy_changes()}
    return bundle.second is not None and changed.keys() <= set(LIMITS)
