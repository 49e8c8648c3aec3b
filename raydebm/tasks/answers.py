r"""Find the marked answer of a completion, read numbers, and write them in canonical form.

In:   any text.
Out:  the marked text, an exact ``Fraction``, or None. The functions do not raise, whatever the text.
Independent of: problems, gold, tasks.

Marks of an answer, strongest first. The last mark of a kind counts, because models correct themselves.

1. ``#### 18`` (headings such as ``#### Step 1: ...`` and ``#### 2. Total`` are not answers)
2. ``{"answer": "18"}``, also without valid JSON around it
3. ``\boxed{18}`` and ``\boxed 18``
4. "the answer is 18", "Answer: 18", "A: 18"
5. the last number of the last line: only with ``fallback=True``

Some answers repeat their result at the end without a space: ``\(\boxed{\$45.00}\).45.00``. The full stop before the
repetition is not a decimal point. If the last line has several boxes, the box with the repeated result counts.

Marks 2 and 3 decide even if they contain no number (``{"answer": "none"}``, ``\boxed{\text{Monday}}``): the model has
answered, and a number found elsewhere would be a guess.

Units, currency and percent signs are dropped: "$5", "5 dollars" and "5%" are all 5. Number words are not read, except
for "thousand", "million" and "billion" after digits. Unfinished arithmetic ("18 - 3", "2^3"), ratios and times of day
("2:10 pm") are not numbers, and neither are their parts; "2:00" is 2.
"""

import json
import re
from collections import deque
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import NamedTuple

_MAX_CHARS = 200
"""Maximum length of a number. Python refuses to read integers of more than 4,300 digits."""
_MAX_EXPONENT = 100
_MAX_BOXES, MAX_BOX_CHARS = 20, 1000
"""Limits on the search for a closing brace, so that the search is cheap in degenerate text."""
_MAX_DECIMALS = 30
_SCALES = {"thousand": 3, "million": 6, "billion": 9}
"""Words for powers of ten after digits."""
_MAX_PHRASES = 20

_FRACTION_SIGNS = {"\u00bc": "1/4", "\u00bd": "1/2", "\u00be": "3/4"}
_REWRITES: tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = (
    (re.compile(r"[\u2212\u2012\u2013\ufe63\uff0d]"), "-"),  # minus signs, and dashes in their place
    (re.compile(r"[\u00a0\u2009\u202f]|\\[;: ]"), " "),
    (re.compile(r"\\[dtc]frac"), r"\\frac"),
    (re.compile(r"\\frac\s?(\d)\s?(?=\d(?!\d)|\{)"), r"\\frac{\1}"),
    (re.compile(r"(\\frac\{-?\d{1,200}\})\s?(\d)(?!\d)"), r"\1{\2}"),
    (re.compile(r"\s?([\u00bc-\u00be])"), lambda match: f" {_FRACTION_SIGNS[match[1]]} "),
    # Several full stops between groups of three digits are not decimal points.
    (re.compile(r"(?<![\d.,])\d{1,3}(?:\.\d{3}){2,30}(?![\d,]|\.\d)"), lambda match: match[0].replace(".", ",")),
    (re.compile(r"\{,\}|\\,(?=\d{3})"), ","),
    (re.compile(r"\\!"), ""),
    (re.compile(r"\\\$|\\textdollar\b"), "$"),
    (re.compile(r"\\%"), "%"),
    (re.compile(r"\\times|\\cdot|\u00d7"), "*"),
    (re.compile(r"\\div"), "÷"),
    # A full stop before a repeated result: ``\(45\).45`` does not end with the number .45.
    (re.compile(r"(?<=[)\]}%])\.(?=\d)|(?<=[a-z]{2})\.(?=\d)"), ". "),
)

_NUMBER = re.compile(
    r"""
    (?<![\w.])
    (?P<sign>(?<![)\]}%])[-+])?
    (?:[$€£¥]\s?)?
    (?P<inner_sign>[-+])?
    (?:
        (?P<latex_whole>\d+)?\s?\\frac\s?\{\s?(?P<latex_top>-?\d+)\s?\}\s?\{\s?(?P<latex_bottom>\d+)\s?\}
      | (?:(?P<whole>\d+)\s)?(?P<top>\d+)\s?/\s?(?P<bottom>\d+)(?![\d/]|\.\d)
      | (?P<hour>\d+)(?P<minutes>(?::\d+)+)
      | (?P<plain>(?:\d{1,3}(?:(?:,\d{3})+|(?:[ ]\d{3})+)(?!\d)|\d+)(?:\.\d*)?|\.\d+)
        (?:[eE](?P<exponent>[-+]?\d{1,9})(?!\w)|\s?[*x]\s?10\s?\^\s?\{?\s?(?P<power>[-+]?\d{1,9})\s?\}?)?
        (?:[ ](?P<scale>thousand|million|billion)\b)?
    )
    """,
    re.VERBOSE | re.ASCII,
)

# An operator and an operand after a number, which is then part of arithmetic. The operand is a number or an unknown.
# "/h" is a unit, "- a" may begin a remark, and the asterisks in "**18** 5" are bold type.
_JOINED = re.compile(
    r"""
    [A-Za-z]?[)\]}%]{0,9}
    (?:
        [ \t]?(?:[-+/^÷x]|\*(?!\*)|\*\*(?=\d))[ \t]?[(\[{$€£¥]{0,9}[-+]?[$€£¥]?(?:\.?\d|\\frac)
      | (?:[ \t]?[-+*]|[ ]/)[ \t]?\(?[A-Za-z](?![\w']|[ ][a-z])
      | [ ]\+[ ][A-Za-z]
    )
    """,
    re.VERBOSE | re.ASCII,
)
_UNKNOWN_BEFORE = re.compile(r"(?<![\w'])[A-Za-z]\)?[ \t]?[-+*/^][ \t]?[($]{0,3}\Z", re.ASCII)
_MAX_BEFORE = 10

_OBJECT = re.compile(r"\s*(?:```\s?(?:json)?\s*)?\{\s*[\"']")

_HASHES = "####"
_SAYS_ANSWER = re.compile(r"\A[:*_\s]{0,20}(?:the\s)?(?:final\s)?answer(?:\sis\b|\b)[:*_\s]{0,20}", re.IGNORECASE)
_HEADING = re.compile(
    r"[^\w\n]{0,20}(?:(?:step|part|case)\s+(?:\d+|\w|one|two|three|four|five)\b|\d{1,3}(?:st|nd|rd|th)\s+\w"
    r"|\d+[.)][ \t]+\w)|.{0,300}:[*_\s]{0,20}\Z",
    re.IGNORECASE | re.ASCII,
)
# Punctuation and LaTeX commands before the number, then its first digit.
_NUMBER_FIRST = re.compile(r"(?:\\[A-Za-z]+|[^\w\n]){0,20}\d", re.ASCII)
# Unquoted values end with their line, object or field; braces in them are LaTeX.
_JSON_ANSWER = re.compile(
    r"""(?<!\\)(?:"(?:final[_ ]?)?answer"|(?<!\w)'(?:final[_ ]?)?answer')\s*:\s*(?:"""
    r""""(?P<double>(?:[^"\\]|\\.)*)"|'(?P<single>(?:[^'\\\n]|\\.|'(?!\s{0,20}(?:[,}\n]|\Z))){0,1000})'"""
    r"""|(?P<bare>null|true|false|\[|\{|(?=[-+$€£¥.\d\\√]|\([^()\n]{0,100}\)\s{0,20}[,}\n])(?!\\["'])"""
    r"""(?:[^"{}\n,]|,(?!\s{0,20}["']?\w{1,60}["']?\s{0,3}:)|\{(?:[^{}\n]|\{[^{}\n]{0,100}\}){0,100}\}){1,500}))""",
    re.IGNORECASE | re.DOTALL,
)
# Models write LaTeX into JSON without the second backslash, and JSON then reads the start of \frac as a form feed.
_BARE_LATEX = re.compile(r"(?<!\\)\\(?=[bfrt][a-z]{2})")
_TWO_BACKSLASHES = r"\\\\"
_AFTER_PHRASE = r"[*_:\s]*(?=([^\n]{0,500}))"
_PHRASE, _CHOICE_PHRASE = (
    re.compile(
        rf"(?:\b(?:{subject})\b[*_\s]*(?:is|would be|equals|:|=)|^[ \t]*A:){_AFTER_PHRASE}",
        re.IGNORECASE | re.MULTILINE,
    )
    for subject in ("answer", "answer|(?:correct|right|best) (?:option|choice)")
)
LATEX_TEXT = re.compile(r"\\(?:text|mathrm|textbf|mathbf|mbox)\b")
"""LaTeX command that encloses words in a formula."""
_BOX = re.compile(
    r"\\(?:boxed|fbox)(?![A-Za-z])\s{0,3}(?:\{|(?=[-+(\[.]{0,2}[\w\\])(?![A-Za-z]{2})"
    # Without braces: a formula up to its end or the end of the line, if it contains no words; else a number.
    r"(?:(?P<formula>(?:(?!\s[A-Za-z]{2})[^$\n{}]|\{[^{}\n]{0,100}\}){1,200}?)(?=\$|\\[)\]]|\n|\Z)"
    r"|(?P<number>[-+]?\d+(?:[.,]\d+){0,9})))"
)
# "2", "(2)", "choice 2", "Option (B)", "2. Ana", "B) Ana", "2 - Ana". A letter needs punctuation or the end after it,
# because "A" is also an article.
LABEL = re.compile(
    r"(?:the\s)?(?:choice|option|number|answer)?[\s#:]{0,3}(?:no\.\s?)?"
    r"(?:\(\s?(?P<inside>\d{1,2}|[A-Za-z])\s?\)|(?P<number>\d{1,2})(?![\w%]|[.,]\d)"
    r"|(?P<letter>[A-Z])(?=\s*(?:[).:,;\]]|-\s|$)))"
    r"\s*[).:\]-]{0,2}\s*",
    re.IGNORECASE,
)
OTHER_LABEL = re.compile(
    r"(?:^|\b(?:or|and|nor)\b|[,/&])\s*(?:choice|option)?\s*\(?(\d{1,2}|[A-Z])\)?(?=\s*(?:$|[).,;]|\b(?:or|and)\b))",
    re.IGNORECASE,
)
"""Another label, as an alternative to the first one."""
_REPEATED = re.compile(r"[)\]}a-z]\.([$€£¥]?\d[\d,]{0,30}(?:\.\d{1,30})?)\s*\Z", re.ASCII)
_SENTENCE_END = re.compile(r"[.!?](?:\s|$)")
_EQUALS = re.compile(r"=|≈|\\approx")


def find_number(text: str, *, fallback: bool = False) -> Fraction | None:
    """Number that is marked as the answer, in the order of the module's docstring.

    Args:
        text: completion to read.
        fallback: permission to use the last number of the last line if nothing is marked. It does not apply to a text
            that begins with a JSON object, where that number may belong to the reasoning.
    """
    for marked in (_number_after_hashes(text), json_answer(text), _repeated_box(text) or boxed(text)):
        if marked is not None:
            return read_number(marked)
    for phrase in answer_phrases(text):
        numbers = _numbers_after_equals(sentences(phrase)[0])
        if numbers:
            return numbers[0]
    return _last_number(text) if fallback and not opens_object(text) else None


def read_number(text: str) -> Fraction | None:
    """The number of a short text that is known to be an answer: "$1,080", "3 1/2 hours", "2 * 9 = 18" (18).

    The first number after the last equals sign counts: "4 (3 onions and 1 potato)" is 4. None if it is part of
    arithmetic, such as the 18 of "18 - 3".
    """
    numbers = _numbers_after_equals(text)
    return numbers[0] if numbers else None


def _numbers_after_equals(text: str) -> list[Fraction | None]:
    return numbers_in(_EQUALS.split(text)[-1])


def numbers_in(text: str) -> list[Fraction | None]:
    """Numbers of the text, in order; None for parts of arithmetic, times of day, ratios, divisions by zero."""
    for pattern, replacement in _REWRITES:
        text = pattern.sub(replacement, text)
    numbers: list[Fraction | None] = []
    is_joined = False
    for match in _NUMBER.finditer(text):
        was_joined = is_joined or _UNKNOWN_BEFORE.search(text[max(0, match.start() - _MAX_BEFORE) : match.start()])
        is_joined = _JOINED.match(text, match.end()) is not None
        numbers.append(None if was_joined or is_joined else _value(match))
    return numbers


def opens_object(text: str) -> bool:
    """True if the text begins with a JSON object, complete or not, also in a code fence."""
    return _OBJECT.match(text) is not None


def render_number(value: Fraction) -> str:
    """Canonical text of a number: ``18``, ``-0.5``, or ``1/3`` if no short decimal is exact."""
    decimals = next((count for count in range(_MAX_DECIMALS + 1) if 10**count % value.denominator == 0), None)
    if decimals is None:
        return f"{value.numerator}/{value.denominator}"
    if decimals == 0:
        return str(value.numerator)
    digits = str(abs(value.numerator) * (10**decimals // value.denominator)).rjust(decimals + 1, "0")
    return f"{'-' if value < 0 else ''}{digits[:-decimals]}.{digits[-decimals:]}"


class HashMark(NamedTuple):
    """Text after four hash signs, up to the next ones or the end of the line."""

    text: str
    ends_text: bool
    """True if the mark is in the last line, where words are an answer rather than a heading."""


def hash_marks(text: str) -> list[HashMark]:
    """All marks, in order; empty if they only number the sections of the text as 1, 2, ..."""
    lines = text.rstrip().split("\n")
    marks = [
        HashMark(_without_closing_hashes(mark), number == len(lines))
        for number, line in enumerate(lines, start=1)
        if _HASHES in line
        for mark in line.split(_HASHES)[1:]
    ]
    are_sections = len(marks) > 1 and all(
        mark.text.strip(" *_.:") == str(number) and not mark.ends_text for number, mark in enumerate(marks, start=1)
    )
    return [] if are_sections else marks


def hash_answers(text: str) -> list[HashMark]:
    """Marks without the known forms of headings, and without "the final answer is" at their start. A mark with words
    may still be a heading."""
    answers = (HashMark(_SAYS_ANSWER.sub("", mark.text, count=1), mark.ends_text) for mark in hash_marks(text))
    return [mark for mark in answers if mark.text and not _HEADING.match(mark.text)]


def _without_closing_hashes(mark: str) -> str:
    mark = mark.strip(" \t").lstrip("#").strip(" \t")
    bare = mark.rstrip("#")
    return bare.rstrip() if bare.endswith((" ", "\t")) else mark  # "C#" keeps its sign


def _number_after_hashes(text: str) -> str | None:
    return next((mark.text for mark in reversed(hash_answers(text)) if _NUMBER_FIRST.match(mark.text)), None)


def json_answer(text: str) -> str | None:
    """Value of the last ``"answer"`` field, or None."""
    answers = json_answers(text)
    return answers[-1] if answers else None


def json_answers(text: str) -> list[str]:
    """Texts of all ``"answer"`` fields, also in invalid JSON; null is "null", a list "[", and an object "{"."""
    return [_json_text(match) for match in _JSON_ANSWER.finditer(text)]


def _json_text(match: re.Match[str]) -> str:
    if match["bare"] is not None:
        return match["bare"].strip()
    return _unescaped(match["double"]) if match["single"] is None else match["single"].replace("\\'", "'")


def _unescaped(quoted: str) -> str:
    try:
        return str(json.loads(f'"{_BARE_LATEX.sub(_TWO_BACKSLASHES, quoted)}"', strict=False))
    except json.JSONDecodeError:
        return quoted


def boxed(text: str) -> str | None:
    r"""Content of the last complete ``\boxed{...}`` or ``\fbox{...}``, which may have nested braces or none."""
    return next(boxes(text), None)


def boxes(text: str) -> Iterator[str]:
    """Contents of the complete boxes among the last ``_MAX_BOXES``, last one first."""
    for match in reversed(deque(_BOX.finditer(text), maxlen=_MAX_BOXES)):
        bare = match["formula"] or match["number"]
        if bare is not None:
            yield bare.strip(" \t.,;")
            continue
        depth = 1
        for position in range(match.end(), min(len(text), match.end() + MAX_BOX_CHARS + 1)):
            depth += {"{": 1, "}": -1}.get(text[position], 0)
            if depth == 0:
                yield text[match.end() : position]
                break


def _repeated_box(text: str) -> str | None:
    """Box in the last line with the number that the end of the text repeats without a space."""
    line = text.rstrip().rsplit("\n", 1)[-1]
    repeated = _REPEATED.search(line)
    if repeated is None:
        return None
    result = read_number(repeated[1])
    return next((content for content in boxes(line) if read_number(content) == result), None)


def answer_phrases(text: str, *, of_choices: bool = False) -> Iterator[str]:
    """Rest of the line after the last ``_MAX_PHRASES`` phrases such as "the answer is" and "Answer:", last one first.
    With ``of_choices``, "the correct option is" is such a phrase, too."""
    pattern = _CHOICE_PHRASE if of_choices else _PHRASE
    return (match[1] for match in reversed(deque(pattern.finditer(text), maxlen=_MAX_PHRASES)))


def label_of(match: re.Match[str]) -> str:
    """Letter or number of a match of ``LABEL``."""
    return str(match["inside"] or match["number"] or match["letter"])


def sentences(text: str) -> list[str]:
    """Split a text into at least one sentence. A full stop ends one only before whitespace, so 2.5 stays whole."""
    return _SENTENCE_END.split(text)


def _last_number(text: str) -> Fraction | None:
    lines = [line for line in text.splitlines() if line.strip(" \t`*_\\[]()$")]
    numbers = numbers_in(lines[-1]) if lines else []
    return numbers[-1] if numbers else None


def _value(match: re.Match[str]) -> Fraction | None:
    """The number, or None if its canonical text would be too long to read back."""
    value = _exact_value(match)
    return None if value is None or len(render_number(value)) > _MAX_CHARS else value


def _exact_value(match: re.Match[str]) -> Fraction | None:
    if len(match[0]) > _MAX_CHARS:
        return None
    sign = -1 if "-" in (match["sign"], match["inner_sign"]) else 1
    if match["hour"] is not None:
        return None if match["minutes"].strip(":0") else sign * Fraction(match["hour"])
    if match["plain"] is not None:
        exponent = int(match["exponent"] or match["power"] or 0)
        if abs(exponent) > _MAX_EXPONENT:
            return None
        exponent += _SCALES.get(match["scale"] or "", 0)
        plain = match["plain"].replace(",", "").replace(" ", "").rstrip(".")
        return sign * Fraction(plain) * Fraction(10) ** exponent
    whole = int(match["latex_whole"] or match["whole"] or 0)
    top, bottom = int(match["latex_top"] or match["top"]), int(match["latex_bottom"] or match["bottom"])
    return None if bottom == 0 else sign * (whole + Fraction(top, bottom))
