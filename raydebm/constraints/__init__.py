"""Constraints: gold-free checks of one answer, built in or a user's own, all declared the same way."""

from raydebm.constraints.core import Check, Constraint, Exactness, Finding, Proof, proof_of, violations_of

__all__ = ["Check", "Constraint", "Exactness", "Finding", "Proof", "proof_of", "violations_of"]
