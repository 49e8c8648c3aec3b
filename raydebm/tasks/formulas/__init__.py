r"""Whether two LaTeX answers are the same mathematics."""

from raydebm.tasks.formulas.latex import (
    as_list_beside,
    based_number,
    capitals,
    exact_number,
    is_bare_list,
    is_braced_set,
    is_bracketed,
    is_point,
    is_prose,
    is_worked_out,
    normal_form,
    sympy_form,
)
from raydebm.tasks.libraries import library

CPU_S = 5.0
"""Limit of one comparison by sympy."""


def is_equivalent(gold: str, answer: str) -> bool:
    r"""True if an answer is equivalent to gold.

    Units, currency and percent signs, the variable ("x = " in "x = 5") and a number's base may be missing from either.
    Numbers with decimals are compared up to the sixth place. The order of a set or list does not count, that of a point
    or vector does, even if one of the two has no brackets. ``70,110`` is a number, or a list if the other answer is
    one. If gold is a number, the answer must be one too, or end in one: ``7 \cdot 6 = 42`` is 42, but ``7 \cdot 6``
    may only repeat the question.

    Raises:
        LibraryError: sympy did not decide it within its limits.
    """
    if _is_same(gold, answer):
        return True
    gold_list = as_list_beside(gold, answer)
    answer_list = as_list_beside(answer, gold_list)
    return (gold_list, answer_list) != (gold, answer) and _is_same(gold_list, answer_list)


def _is_same(gold: str, answer: str) -> bool:
    if normal_form(gold) == normal_form(answer):
        return True
    if _is_other_by_form(gold, answer):
        return False
    if is_point(gold) and is_bare_list(answer):
        answer = f"({answer})"
    if is_bare_list(gold) and is_point(answer):
        gold = f"({gold})"
    forms = {"gold": sympy_form(gold), "answer": sympy_form(answer)}
    return bool(library("math-verify").ask(forms, cpu_s=CPU_S)["equal"])


def _is_other_by_form(gold: str, answer: str) -> bool:
    """True if the texts alone show that an answer of another normal form is wrong."""
    number, answer_number = (exact_number(normal_form(text)) for text in (gold, answer))
    if number is not None and not is_worked_out(answer):
        return True
    if number is not None and answer_number is not None and number.denominator == answer_number.denominator == 1:
        return "%" not in gold + answer
    if based_number(gold) and based_number(answer):
        return True
    if (letters := capitals(gold)) is not None and letters != capitals(answer):
        return True  # the library would read a product, which is the same in any order
    if (is_braced_set(gold) and is_bracketed(answer)) or (is_bracketed(gold) and is_braced_set(answer)):
        return True
    # The library would read a sentence as a product of its letters.
    return is_prose(answer) and not is_prose(gold)
