"""Constraints: gold-free checks of one answer, built in or user-defined, with one declaration for both."""

from raydebm.tasks.constraints.core import Check, Constraint, Exactness, Finding, Proof, proof_of, violations_of

__all__ = ["Check", "Constraint", "Exactness", "Finding", "Proof", "proof_of", "violations_of"]
