r"""Answers in LaTeX: extraction from a completion, a normal form, exact numbers, equivalence.

All functions except ``is_equivalent`` are cheap, do not raise on any text, and need no library.
"""

import re
from fractions import Fraction

from raydebm.tasks.answers import (
    MAX_BOX_CHARS,
    answer_phrases,
    boxed,
    hash_answers,
    json_answer,
    json_answers,
    opens_object,
    render_number,
    sentences,
)
from raydebm.tasks.libraries import library

_MAX_DIGITS = 200
_SPACES = re.compile(r"\s+")
_BOX = re.compile(r"\\(?:boxed|fbox)\b\s?")
_MATH = re.compile(r"(?<!\\)\$\$?((?:\\\$|[^$\n]){1,1000}+)\$|\\\(([^\n]{1,1000}?)\\\)|\\\[([^\n]{1,1000}?)\\\]")
# "answer" field of a malformed object, with its name in bold, in escaped quotation marks or without any.
_WRITTEN_FIELD = re.compile(
    r"""(?:^|\\n)[ \t]*[*_"\\`]{0,4}(?:final[ _])?answer[*_"\\`]{0,4}[ \t]?:[*_]{0,2}[ \t]*"""
    r"""(?:\\?"([^"\n]{1,1000})|([-+]?[\d$\\][^"\n]{0,1000}))""",
    re.IGNORECASE | re.MULTILINE,
)
_EDGES = " \t\r\n*`_\"'"
_MATH_MARKS = (("$$", "$$"), ("$", "$"), ("\\(", "\\)"), ("\\[", "\\]"))

_CHARACTERS = str.maketrans(
    {
        "\u2212": "-", "\u00d7": r"\times ", "\u00f7": "/", "\u03c0": r"\pi ", "\u221e": r"\infty ",
        "\u00b0": r"^\circ ", "\u00b1": r"\pm ", "\u2264": r"\le ", "\u2265": r"\ge ", "\u2260": r"\ne ",
        "\u2208": r"\in ", "\u2205": r"\emptyset ", "\u00b2": "^{2}", "\u00b3": "^{3}",
    }
)  # fmt: skip
_ROOT = re.compile(r"\u221a\s?(?:\(([^()]{1,100})\)|(\d+(?:\.\d+)?|\w))")

# ASCII mathematics as LaTeX commands.
_ASCII = (
    (re.compile(r"\\text\{\s?([A-Z](?:,\s?[A-Z]){1,20})\s?\}"), r"\1"),
    (re.compile(r"(?<![\\A-Za-z])sqrt\s?\(([^()]{1,100})\)"), r"\\sqrt{\1}"),
    (re.compile(r"(?<=[\w)}])\s?\*\s?(?=[\w(\\])"), r"\\cdot "),
    (re.compile(r"\^\(([^()]{1,100})\)"), r"^{\1}"),
)

# Sizes and spaces come first, because the later patterns expect text without them.
_REWRITES = (
    (re.compile(r"\\(?:left|right|bigl?|bigr?|Bigl?|Bigr?|biggl?|biggr?|Biggl?|Biggr?)(?![A-Za-z])\.?"), ""),
    (re.compile(r"\s?\\!\s?"), ""),
    (re.compile(r"\\(?:displaystyle|textstyle|limits|quad|qquad)(?![A-Za-z])|\\[,;: ]|~"), " "),
    (re.compile(r"\\[dtc]frac(?![A-Za-z])"), r"\\frac"),
    (re.compile(r"\\frac\s?(\d)\s?(\d)(?!\d)"), r"\\frac{\1}{\2}"),
    (re.compile(r"\\frac(\{[^{}]{1,100}\})\s?(\d)"), r"\\frac\1{\2}"),
    (re.compile(r"\\sqrt\s?(\w)"), r"\\sqrt{\1}"),
    (re.compile(r"\\varnothing(?![A-Za-z])"), r"\\emptyset"),
    (re.compile(r"\\times(?![A-Za-z])"), r"\\cdot"),
    (re.compile(r"\^\s?\{?\s?\\circ\s?\}?|\\degree(?![A-Za-z])|\\?[%$]|\\textdollar(?![A-Za-z])"), ""),
)
_TEXT = r"\\(?:text|mbox|textbf|textit|textrm|mathrm|mathbf|operatorname)\s?\{([^{}]{0,200})\}"
_ALL_TEXT = re.compile(_TEXT)
_UNIT = re.compile(rf"(?<=[\d}}\w)])\s*{_TEXT}(?:\^\{{?[23]\}}?)?$")
_COUNTED = re.compile(r"(-?[\d.,]{1,30}) (?:(?!or\b|and\b|to\b|not\b)[a-z]{2,15}[ .]?){1,4}")
_WORD = re.compile(r"(?<![\\A-Za-z{])[A-Za-z]{2,}(?![A-Za-z}(])")
_SIDES = re.compile(r"=|\\approx(?![A-Za-z])")
_POWER_OF_TEN = re.compile(r"\\cdot\s?10\^\{?-?\d{1,3}\}?")
_OPERATION = re.compile(r"[-+*^!]|\\(?:sqrt|cdot|binom|log|ln|sin|cos|tan|pm)(?![A-Za-z])")
_ASSIGNED = re.compile(r"(?:[A-Za-z](?:_\{?\w{1,5}\}?)?|[a-z]\([a-z]\))\s*(?:=|\\in(?![A-Za-z]))")
_CONCLUDES = re.compile(r"(?<![<>!:])=|\\approx(?![A-Za-z])|\bis(?: equal to)?\b|\bequals\b|\bare\b")
_CONCLUDED = re.compile(r"[\s$*]{0,9}[^\s$*]{1,60}[\s$*]{0,9}(?:[a-z]{1,12}[\s.$*]{0,9}){0,2}")
# A condition, or an equation to solve ("x + 2 = 5"), before the last "=" or "is".
_NO_CONCLUSION = re.compile(
    r"\b(?:where|such that|satisf\w{1,9}|for which|solv\w{1,9}|setting|equation)\b[^:,]{0,1000}\Z"
    r"|[A-Za-z]\)?\s?[-+*/^][^=]{0,100}\Z|[-+*/^]\s?\(?[A-Za-z][^=]{0,100}\Z"
)
_NEXT_ITEM = re.compile(r",\s")
_NUMBER_OR_LIST = re.compile(r"(?:[A-Za-z]\s?=\s?)?-?\d{1,3}(?:,\d{3})+")
_THOUSANDS = re.compile(r"-?\d{1,3}(?:,\d{3})+(?:\.\d+)?")
_BASED = re.compile(r"(-?[0-9A-Z]{1,200})_\{?(\d{1,3})\}?")
_CAPITALS = re.compile(r"[A-Z]{2,}")
_BRACKETS = ("(", "[")
_LETTERS = re.compile(r"[A-Za-z]{2,}(?: [A-Za-z]+)*")

_DECIMAL = re.compile(r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)")
_REPEATING = re.compile(r"([-+]?)(\d*)\.(\d*)\\(?:overline|bar)(?:\{(\d+)\}|(\d))")
_FRACTION = re.compile(r"([-+]?)\\frac\{(-?\d+)\}\{(-?\d+)\}|([-+]?)(\d+)/(\d+)")
_MIXED = re.compile(r"([-+]?)(\d+)\\frac\{(\d+)\}\{(\d+)\}")


def find_latex(text: str) -> str | None:
    r"""Marked answer of a completion, cleaned, or None.

    If the completion begins with a JSON object, the first non-empty ``"answer"`` field counts: text after the object
    is as often about another problem as it is a correction. If the object is truncated or broken before that field, the
    last box counts, else the last line that looks like the field, such as ``**answer**: "7"``.

    Otherwise the strongest mark counts, and the last one of its kind: ``\boxed{...}``, ``{"answer": ...}``,
    ``#### ...``, "the answer is ...". Unmarked numbers are not answers. If the marked text is a sentence that concludes
    with a number, the number is the answer.
    """
    answer = _find_marked(text)
    return None if answer is None else _conclusion(answer) or answer


def _find_marked(text: str) -> str | None:
    if opens_object(text):
        said = next(filter(_says_something, json_answers(text)), boxed(text) or _written_field(text))
        return None if said is None else clean(said)
    for find in (boxed, json_answer, _after_hashes):
        marked = find(text)
        if marked is not None:
            return clean(marked)
    phrases = (_math_of(phrase) for phrase in answer_phrases(text))
    return next(filter(None, phrases), None)


def clean(text: str) -> str | None:
    """The answer without surrounding boxes, math and bold marks, quotation marks, spaces and full stop.

    None if it has no letter or digit, unbalanced braces, or more than ``MAX_BOX_CHARS`` characters.
    """
    for _ in range(10):
        inner = boxed(text)
        stripped = _strip(text if inner is None else inner)
        if stripped == text:
            break
        text = stripped
    text = _strip(_SPACES.sub(" ", _BOX.sub("", text)))
    says_something = len(text) <= MAX_BOX_CHARS and _says_something(sympy_form(text))
    return text if says_something and _braces_match(text) else None


def normal_form(answer: str) -> str:
    r"""Normal form of an answer: numbers in canonical form; no units, spaces, ``\left`` and the like, or "x =".

    Answers with equal forms are equivalent; answers with different forms may be, too.
    """
    text = sympy_form(answer)
    for pattern, replacement in _REWRITES:
        text = pattern.sub(replacement, text)
    text = _UNIT.sub("", text.strip())
    text = _ALL_TEXT.sub(r"\1", text).strip().rstrip(".")
    counted = _COUNTED.fullmatch(text)
    if counted:
        text = counted[1]
    if _LETTERS.fullmatch(text.strip("() ")):
        return text.strip("() ").casefold()
    assigned = _ASSIGNED.match(text)
    if assigned and "=" not in text[assigned.end() :] and not (assigned[0].endswith("=") and "," in text):
        text = text[assigned.end() :]
    is_list = _NEXT_ITEM.search(text) is not None  # "81, 256" without its blank would be a number
    text = _SPACES.sub("", text)
    number = None if is_list else exact_number(text)
    return text if number is None else render_number(number)


def exact_number(text: str) -> Fraction | None:
    """Number that is the whole text, such as 1,080, -2.5, 3/4, a LaTeX fraction of integers, a mixed number, or a
    decimal with its repeating part under a line. None for other texts."""
    text = text.strip()
    if len(text) > _MAX_DIGITS:
        return None
    if _THOUSANDS.fullmatch(text):
        text = text.replace(",", "")
    if _DECIMAL.fullmatch(text):
        return Fraction(text.rstrip("."))
    match = _REPEATING.fullmatch(text)
    if match is not None:
        whole, once, again = match[2] or "0", match[3], match[4] or match[5]
        repeated = Fraction(int(again), 10 ** len(once) * (10 ** len(again) - 1))
        return (-1 if match[1] == "-" else 1) * (Fraction(f"{whole}.{once or 0}") + repeated)
    match = _MIXED.fullmatch(text)
    if match is not None and int(match[3]) < int(match[4]):
        return (-1 if match[1] == "-" else 1) * (int(match[2]) + Fraction(int(match[3]), int(match[4])))
    match = _FRACTION.fullmatch(text)
    if match is None:
        return None
    sign, top, bottom = (match[1], match[2], match[3]) if match[2] else (match[4], match[5], match[6])
    return None if int(bottom) == 0 else (-1 if sign == "-" else 1) * Fraction(int(top), int(bottom))


def sympy_form(answer: str) -> str:
    """The answer as input of math-verify, with Unicode and ASCII mathematics as LaTeX."""
    text = _ROOT.sub(lambda match: rf"\sqrt{{{match[1] or match[2]}}}", answer).translate(_CHARACTERS)
    for pattern, replacement in _ASCII:
        text = pattern.sub(replacement, text)
    return text.strip()


def _after_hashes(text: str) -> str | None:
    """Text after the last hash signs; words after them are a heading, unless they are in the last line."""
    lines = (mark.text for mark in hash_answers(text) if mark.ends_text or not mark.text.strip("* ")[:2].isalpha())
    return next(reversed(list(lines)), None)


def _says_something(value: str) -> bool:
    return any(map(str.isalnum, value))


def _written_field(text: str) -> str | None:
    values = [(match[1] or match[2]).rstrip("\\") for match in _WRITTEN_FIELD.finditer(text)]
    return next(filter(_says_something, reversed(values)), None)


def _math_of(phrase: str) -> str | None:
    """First formula in the phrase, else its first sentence."""
    formula = _MATH.search(phrase)
    return clean(sentences(phrase)[0] if formula is None else formula[formula.lastindex or 0])


def _conclusion(answer: str) -> str | None:
    """Number at the end of a sentence ("Therefore, the sum is $2016$"). None if it may not be the answer."""
    if not _is_prose(answer):
        return None
    sentence = sentences(answer.rstrip(". "))[-1]
    signs = list(_CONCLUDES.finditer(sentence))
    if not signs or not _CONCLUDED.fullmatch(sentence, signs[-1].end()):
        return None
    if _NO_CONCLUSION.search(sentence[signs[-2].end() if len(signs) > 1 else 0 : signs[-1].start()]):
        return None
    number = clean(sentence[signs[-1].end() :])
    return None if number is None or exact_number(normal_form(number)) is None else number


def _strip(text: str) -> str:
    text = text.strip(_EDGES).rstrip(".").strip(_EDGES)
    for opening, closing in _MATH_MARKS:
        inside = text[len(opening) : -len(closing)]
        if text.startswith(opening) and text.endswith(closing) and len(text) > 2 and opening not in inside:
            return inside.strip(_EDGES)
    return text


def _braces_match(text: str) -> bool:
    depth = 0
    for character in text:
        depth += {"{": 1, "}": -1}.get(character, 0)
        if depth < 0:
            return False
    return depth == 0


CPU_S = 5.0
"""CPU time limit in seconds for one comparison by sympy."""


def is_equivalent(gold: str, answer: str) -> bool:
    r"""True if an answer is equivalent to gold.

    Units, currency and percent signs, the variable ("x = " in "x = 5") and a number's base may be missing from either.
    Numbers with decimals are compared to the sixth place. The order of a set or list does not count. The order of a
    point or vector does, even if only one of the two has brackets. ``70,110`` is a number, or a list if the other text
    is one. If gold is a number, the answer must be or end with a number: ``7 \cdot 6 = 42`` is 42, but ``7 \cdot 6``
    may only repeat the question.

    Raises:
        LibraryError: sympy cannot decide within its limits.
    """
    if _is_same(gold, answer):
        return True
    gold_list = _as_list_beside(gold, answer)
    answer_list = _as_list_beside(answer, gold_list)
    return (gold_list, answer_list) != (gold, answer) and _is_same(gold_list, answer_list)


def _is_same(gold: str, answer: str) -> bool:
    form, other = normal_form(gold), normal_form(answer)
    if form == other:
        return True
    if _is_other_by_form(gold, answer, form, other):
        return False
    if _is_point(form) and _is_bare_list(other):
        answer = f"({answer})"
    if _is_bare_list(form) and _is_point(other):
        gold = f"({gold})"
    forms = {"gold": sympy_form(gold), "answer": sympy_form(answer)}
    return bool(library("math-verify").ask(forms, cpu_s=CPU_S)["equal"])


def _is_other_by_form(gold: str, answer: str, form: str, other: str) -> bool:
    """True if the texts and their normal forms, which differ, show that the answer is wrong."""
    number, answer_number = exact_number(form), exact_number(other)
    if number is not None and not _is_worked_out(other):
        return True
    if number is not None and answer_number is not None and number.denominator == answer_number.denominator == 1:
        return "%" not in gold + answer
    if _BASED.fullmatch(form) and _BASED.fullmatch(other):
        return True
    if (letters := _capitals(gold)) is not None and letters != _capitals(answer):
        return True  # the library would read a product, which is the same in any order
    if form.startswith("\\{") and other[:1] in _BRACKETS:
        return True
    if form[:1] in _BRACKETS and other.startswith("\\{"):
        return True
    # The library would read a sentence as a product of its letters.
    return _is_prose(answer) and not _is_prose(gold)


def _is_worked_out(form: str) -> bool:
    """True if the last side of the equation has no operation, such as a sum, product, power or root."""
    last = _SIDES.split(form)[-1]
    return _OPERATION.search(_POWER_OF_TEN.sub("", last).removeprefix("-")) is None


def _is_point(form: str) -> bool:
    """True if one pair of round or square brackets encloses the whole form, with commas inside."""
    return form[:1] in _BRACKETS and "," in form and not _outside_brackets(form)


def _is_bare_list(form: str) -> bool:
    """True if there are commas but not an equation outside all brackets."""
    outside = _outside_brackets(form)
    return "," in outside and "=" not in outside


def _as_list_beside(answer: str, other: str) -> str:
    """The answer; one such as ``70,110``, a number or a list, becomes the list ``70, 110`` if the other is a list."""
    if _NUMBER_OR_LIST.fullmatch(answer) and "," in normal_form(other):
        return answer.replace(",", ", ")
    return answer


def _is_prose(answer: str) -> bool:
    """True for a sentence, which has at least three words outside formulas."""
    return len(_WORD.findall(_MATH.sub(" ", sympy_form(answer)))) >= 3


def _capitals(answer: str) -> str | None:
    """The whole answer if it is two or more capital letters, such as a word or the name of a figure; else None."""
    text = _SPACES.sub("", _ALL_TEXT.sub(r"\1", sympy_form(answer)))
    return text if _CAPITALS.fullmatch(text) else None


def _outside_brackets(text: str) -> str:
    """Text outside brackets of any kind; an interval may open with one kind and close with another."""
    outside, depth = [], 0
    for character in text:
        depth += character in "([{"
        if depth == 0:
            outside.append(character)
        depth -= character in ")]}" and depth > 0
    return "".join(outside)
