"""Exact constraints: when an answer is proven right or wrong."""

from raydebm.records import Problem
from raydebm.tasks.constraints import Constraint, Finding, Proof, proof_of, violations_of

PROBLEM = Problem(task="toy", problem_id="p", prompt="?")


def constraint(name, *findings, note=None):
    exactness = None if note is None else lambda problem: note
    return Constraint(name=name, check=lambda problem, answer: findings, exactness=exactness)


def proof(*constraints):
    return proof_of(constraints, PROBLEM, violations_of(constraints, PROBLEM, "answer"))


def test_a_constraint_that_is_never_exact_proves_nothing():
    assert proof(constraint("style")) == Proof(holds=None)


def test_a_violated_inexact_constraint_leaves_the_proof_standing():
    assert proof(constraint("style", Finding(penalty=3.0)), constraint("sum", note="")).holds is True


def test_of_two_exact_constraints_the_violated_one_decides():
    assert proof(constraint("sum", note=""), constraint("unit", Finding(penalty=1.0), note="")).holds is False


def test_a_constraint_that_is_not_exact_for_this_problem_says_why():
    assert proof(constraint("sum", note="two sums fit")) == Proof(holds=None, note="two sums fit")
