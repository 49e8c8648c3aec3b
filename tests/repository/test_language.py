"""The worst habits of language stay out of the documents and of the packages that are clean (CONTRIBUTING.md, Style).

Packages and pages that are not clean yet are listed below. The lists may only shrink: a listed one that has become
clean fails until it is taken off.
"""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
PACKAGE = REPOSITORY / "raydebm"
CLIENT = REPOSITORY / "client" / "raydebm_client"

HABITS = {
    "say `per`: one row per decision": r"\bone (?:row|object|line|dict|record|event|answer|file|column) an? ",
    "say `decision`": r"\brulings?\b",
    "say `client` or `user`": r"\bthe asker\b",
    "say `progress`": r"\btellers?\b",
    "say `fix`": r"\bmend(?:s|ed|ing)?\b",
    "say `again`": r"\banew\b",
    "say `anyone who`, or name the person": r"\bwho(?:ever|soever)\b",
    "say `no one`, or name the thing": r"\bnobody\b",
    "say `next to`, `with` or `and`": r"\bbesides?\b",
    "say `fails`": r"\bsinks (?:no|the|all|every|its)\b",
    "say `happens to`": r"\bbefalls\b",
    "say `overfits`": r"\bby heart\b",
    "say `significant`": r"\bclear of (?:0|zero)\b|\bnot told (?:from|apart)\b",
    "say `by default`": r"\bunless told otherwise\b",
    "say `remedy`": r"\bthe way out\b",
    "say what it is not": r"\bis none[.;:]",
}
"""Advice: pattern. Applied to prose outside of code, whatever the case."""

PLAIN_HABITS = {
    "say `is`, `has` or `gets`": r"\b(?:stands|lies|goes before|(?:is|are) told)\b",
    "negate the verb": r"\b(?<!there )(?:is|are) no (?!longer|more|such)",
    "state a default as `Default: ...`": r"\b(?-i:None): ",
}
"""The same for docstrings, messages of errors, and documents outside the log."""

IDENTIFIERS = re.compile(r"(?:^|_)(?:ruling|teller|asker|making)s?(?:_|$)", re.IGNORECASE)

MESSAGES_TO_DO = {"config", "tasks"}
PACKAGES_TO_DO: set[str] = set()
PAGES_TO_DO: set[str] = set()


def without_code(text):
    return re.sub(r"`[^`\n]*`", "", re.sub(r"^(```|~~~).*?^\1", "", text, flags=re.MULTILINE | re.DOTALL))


def faults_in(text, habits=HABITS):
    """Advice for each habit that the prose has, with the words that show it."""
    prose = " ".join(without_code(text).split())
    return [
        f"{match.group(0)!r}: {advice}"
        for advice, pattern in habits.items()
        for match in re.finditer(pattern, prose, flags=re.IGNORECASE)
    ]


def docstrings_of(tree):
    """Docstrings of modules, classes, functions and attributes: every statement that is a text and nothing else."""
    return [
        node.value.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    ]


def messages_of(tree):
    """Constant parts of the texts of errors."""
    raised = [node for raising in ast.walk(tree) if isinstance(raising, ast.Raise) for node in ast.walk(raising)]
    return [node.value for node in raised if isinstance(node, ast.Constant) and isinstance(node.value, str)]


def faults_of_source(source, *, messages=True):
    tree = ast.parse(source)
    raised = messages_of(tree) if messages else []
    faults = [fault for text in raised for fault in faults_in(text, PLAIN_HABITS)]
    for text in docstrings_of(tree):
        if re.match(r"\s*(?:Of|What|How|Which|Who|Why)\s", text):
            faults.append(f"{text.strip().splitlines()[0]!r}: begin with a noun or a verb")
        faults += faults_in(text, HABITS | PLAIN_HABITS)
        for name, meaning in re.findall(r"^ *(\w+): (?:(?:the|an?) )?([\w ]+)\.$", text, flags=re.MULTILINE):
            if meaning.lower() == name.replace("_", " "):
                faults.append(f"{name}: described by its own name")
    defined = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    for node in ast.walk(tree):
        if isinstance(node, defined) and IDENTIFIERS.search(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", node.name)):
            faults.append(f"{node.name}: not a word of the glossary")
    return faults


@cache
def faults_of_package(name):
    place = CLIENT if name == CLIENT.stem else PACKAGE / name
    files = sorted(place.rglob("*.py")) if place.is_dir() else [place.with_suffix(".py")]
    return [
        f"{file.relative_to(REPOSITORY)}: {fault}"
        for file in files
        for fault in faults_of_source(file.read_text(encoding="utf-8"), messages=name not in MESSAGES_TO_DO)
    ]


def packages():
    entries = [file for file in PACKAGE.iterdir() if file.suffix == ".py" or (file / "__init__.py").exists()]
    return sorted([CLIENT.stem, *(file.stem for file in entries)])


def pages():
    documents = [*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").rglob("*.md")]
    return sorted(str(page.relative_to(REPOSITORY)) for page in documents if page.parent.name != "results")


@pytest.mark.parametrize("name", packages())
def test_the_language_of_a_package(name):
    faults = faults_of_package(name)
    if name in PACKAGES_TO_DO:
        assert faults, f"{name} is clean: take it off PACKAGES_TO_DO"
    else:
        assert faults == []


@pytest.mark.parametrize("name", pages())
def test_the_language_of_a_page(name):
    habits = HABITS if name.startswith("docs/log/") else HABITS | PLAIN_HABITS
    faults = faults_in((REPOSITORY / name).read_text(encoding="utf-8"), habits)
    if re.search(r"^\|.*\| Of [^|]*\|$", (REPOSITORY / name).read_text(encoding="utf-8"), flags=re.MULTILINE):
        faults.append("a meaning that begins with `Of`")
    if name in PAGES_TO_DO:
        assert faults, f"{name} is clean: take it off PAGES_TO_DO"
    else:
        assert faults == []


def test_what_is_to_do_exists():
    assert set(packages()) >= PACKAGES_TO_DO
    assert set(pages()) >= PAGES_TO_DO


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("Parquet files, one row a decision.", "one row a"),
        ("It is\nbuilt anew.", "anew"),
        ("One bad text sinks no other.", "sinks no"),
        ("A policy that is none.", "is none."),
        ("MBPP is not told from it, with intervals clear of 0.", "clear of 0"),
    ],
)
def test_a_habit_is_found(text, word):
    assert any(word in fault for fault in faults_in(text))


@pytest.mark.parametrize(
    "text", ["One row per decision.", "`anew` in code", "```\nnobody\n```\n", "A guarantee is none of these."]
)
def test_plain_text_and_code_pass(text):
    assert faults_in(text) == []


def test_a_docstring_that_begins_with_of_a_private_name_and_a_bad_message_are_found():
    source = 'class Ruling:\n    rate: float = 0.1\n    """Of AdamW."""\n\n\nraise ValueError(f"{x!r} is no number")\n'

    assert [fault.split(":")[0] for fault in faults_of_source(source)] == ["'is no '", "'Of AdamW.'", "Ruling"]


def test_an_argument_that_is_described_by_its_own_name_is_found():
    source = '"""Read.\n\nArgs:\n    run_dir: the run dir.\n    limit: lowest limit.\n"""\n'

    assert faults_of_source(source) == ["run_dir: described by its own name"]
