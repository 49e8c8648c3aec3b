"""A task declared in a file: what it reads, what it refuses, and that gold goes nowhere."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from task_data import label, write

from raydebm.decision.feedback import feedback_messages
from raydebm.decision.sampling.checks import check_candidate
from raydebm.errors import ConfigError, TaskDataError
from raydebm.identity import canonical_json
from raydebm.records import Candidate, ScoredCandidate, Verdict
from raydebm.run.tables import PROBLEM
from raydebm.tasks.constraints import Constraint, Finding, violations_of
from raydebm.tasks.declared import DeclaredTask
from raydebm.tasks.declared.answer_reading import find_json

SHOP = {
    "name": "shop",
    "instructions": "Answer.",
    "prompt": "Message: {message}\nPaid: {paid}",
    "output": {"format": "json", "schema": {"type": "object", "required": ["refund"]}},
    "constraints": [
        {"name": "limit", "rule": "compare", "value": "answer.refund", "at_most": "problem.paid", "weight": 2.0}
    ],
    "vote": "answer.refund",
    "gold": {"field": "expected", "value": "answer.refund", "match": "number"},
    "data": {"id": "id", "difficulty": "kind", "fields": ["codes"]},
}
ROWS = [
    {"id": "r1", "kind": "late", "message": "It is late.", "paid": 10, "codes": ["x"], "expected": 123.25},
    {"id": "r2", "kind": "broken", "message": "It broke {sic}.", "paid": 20, "codes": [], "expected": "$4,321.50"},
]
SIMPLE = {"name": "simple", "instructions": "Answer.", "prompt": "Question: {question}"}


def shop(**changes):
    return DeclaredTask({**SHOP, **changes})


def simple(**changes):
    return DeclaredTask({**SIMPLE, **changes})


@pytest.fixture
def loaded(tmp_path):
    return list(shop().load("train", source=write(tmp_path / "train.jsonl", *ROWS)))


@pytest.fixture
def problem(loaded):
    return loaded[0][0]


# ---- problems and gold -----------------------------------------------------------------------------------------------


def test_rows_become_problems(loaded):
    problem, gold = loaded[1]

    assert problem.prompt == "Message: It broke {sic}.\nPaid: 20"
    assert problem.data == {"message": "It broke {sic}.", "paid": 20, "codes": [], "source_id": "r2"}
    assert problem.difficulty == "broken"
    assert gold.value == {"answer": "$4,321.50"}
    assert gold.problem_id == problem.problem_id


def test_a_column_says_the_kind_of_a_problem(tmp_path):
    rows = [ROWS[0], {**ROWS[1], "kind": None}]
    task = shop(data={"kind": "kind", "fields": ["codes"]})

    kinds = [problem.kind for problem, _ in task.load("train", source=write(tmp_path / "train.jsonl", *rows))]
    typed = task.problem_from_text(json.dumps({"message": "Late.", "paid": 1, "codes": [], "kind": "late"}))

    assert kinds == ["late", ""]
    assert typed.kind == "late"
    assert "kind" not in typed.data


def test_gold_stands_nowhere_but_in_gold(loaded):
    for problem, gold in loaded:
        assert str(gold.value["answer"]) not in canonical_json(PROBLEM.row(problem))
        assert "expected" not in canonical_json(PROBLEM.row(problem))


def test_a_problem_is_the_same_whatever_its_gold(loaded, tmp_path):
    changed = shop().load("train", source=write(tmp_path / "train.jsonl", *({**row, "expected": 5} for row in ROWS)))

    assert [problem for problem, _ in changed] == [problem for problem, _ in loaded]


@pytest.mark.parametrize(
    "changes",
    [
        {"prompt": "{message} {expected}"},
        {"data": {"fields": ["codes", "expected"]}},
        {"data": {"fields": ["codes"], "id": "expected"}},
        {"data": {"fields": ["codes"], "difficulty": "expected"}},
        {"data": {"fields": ["codes"], "kind": "expected"}},
    ],
)
def test_a_task_that_shows_gold_is_refused(changes):
    with pytest.raises(ConfigError, match=r"gold\.field 'expected' is also in"):
        shop(**changes)


def test_a_constraint_that_asks_for_gold_is_refused():
    rule = {"name": "cheat", "rule": "holds", "that": "answer.refund == problem.expected"}

    with pytest.raises(ConfigError, match=r"'cheat' reads problem\.expected, which is not among the fields"):
        shop(constraints=[rule])


def test_the_same_prompt_with_other_data_is_another_problem(tmp_path):
    assert (
        len(list(shop().load("train", source=write(tmp_path / "train.jsonl", ROWS[0], {**ROWS[0], "codes": ["y"]}))))
        == 2
    )


def test_the_data_files_lie_beside_the_task_file(tmp_path):
    write(tmp_path / "my_rows.jsonl", *ROWS)
    task = shop(folder=str(tmp_path), data={"train": "my_rows.jsonl", "fields": ["codes"]})

    assert len(list(task.load("train"))) == 2
    with pytest.raises(TaskDataError, match=r"has no data for test; set data\.test"):
        task.load("test")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"message": None, "gone": ["paid"]}, "train.jsonl:1: field 'paid' is missing"),
        ({"expected": "a lot"}, "train.jsonl:1: field 'expected' must be a number, got 'a lot'"),
    ],
)
def test_a_bad_row_is_named(change, words, tmp_path):
    row = {**ROWS[0], **change}
    for name in row.pop("gone", []):
        del row[name]
    with pytest.raises(TaskDataError) as caught:
        list(shop().load("train", source=write(tmp_path / "train.jsonl", row)))
    assert words in str(caught.value)


# ---- typed problems --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["Why?", " Why? ", "Question: Why?", '{"question": "Why?"}'])
def test_a_typed_question_is_the_loaded_problem(text, tmp_path):
    (loaded, _) = next(simple().load("train", source=write(tmp_path / "train.jsonl", {"question": "Why?"})))

    assert simple().problem_from_text(text) == loaded


def test_several_fields_are_typed_as_json(problem):
    typed = shop().problem_from_text('{"message": "It is late.", "paid": 10, "codes": ["x"], "expected": 1}')

    assert typed.problem_id == problem.problem_id
    with pytest.raises(TaskDataError, match="needs the fields message, paid, codes: send a JSON object"):
        shop().problem_from_text("It is late.")


def test_messages_need_the_data(problem):
    chat = shop().messages(problem)

    assert [message["role"] for message in chat] == ["system", "user"]
    assert chat[1]["content"] == problem.prompt
    with pytest.raises(TaskDataError, match="field 'paid' is missing"):
        shop().messages(type(problem)(task="shop", problem_id="x", prompt="?", data={"message": "m"}))


# ---- answers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('so {"refund": 5}', {"refund": 5}),
        ('first {"refund": 5}, then better: {"refund": 6}', {"refund": 6}),
        ('with \\frac{a}{b} and {x}: {"refund": 7} done}', {"refund": 7}),
        ('{"reply": "two\nlines"}', {"reply": "two\nlines"}),
        ("[1, 2]", None),
        ('{"items": [{"id": "a"}, {"id": "b"}', None),
        ('{"reply": "x", oops, "meta": {"a": 1}}', None),
        ('{"refund": 5, "refund": 6}', None),
        ('{"refund": "\\ud800"}', None),
        ('{"refund": ' + "9" * 5000 + "}", None),
        ('{"a":' * 100 + "1" + "}" * 100, None),
    ],
)
def test_json_is_the_last_whole_object_or_none(text, expected):
    assert find_json(text) == expected


def test_an_array_where_the_schema_says_so(problem):
    task = shop(output={"format": "json", "schema": {"type": "array"}}, constraints=[], vote="answer", gold=None)

    assert task.parse(problem, 'x {"a": [1]} [1, {"a": 2}]') == [1, {"a": 2}]


def test_a_completion_that_is_too_long_has_no_answer(problem):
    assert shop().parse(problem, '{"refund": 1}' + " " * (100_000 - 13)) == {"refund": 1}
    assert shop().parse(problem, '{"refund": 1}' + " " * (100_000 - 12)) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("#### B", "b"),
        ("The answer is (A).", "A"),
        ("**Answer**: b", "b"),
        ("#### Reasoning\nbecause\n\nAnswer: b", "b"),
        ("#### b\nas said in\n#### Reasoning\nabove", "b"),
        ("$\\boxed{\\text{b}}$", "b"),
        ("Answer: b\n\nNote: the answer is based on the text.", "b"),
        ("The answer is A. No, the answer is not b.", None),
        ("The answer is option B.", "b"),
        ("Rome is too small.\n#### B) Paris", "b"),
        ("Rome is too small.\nB. Paris", "b"),
        ("A. Rome\nB. Paris", None),
        ("#### B) Paris, or A", None),
    ],
)
def test_choice(text, expected):
    assert simple(output={"format": "choice", "choices": ["A", "b"]}).parse(None, text) == expected


def test_number_answers_are_numbers_to_rules():
    rule = {"name": "small", "rule": "compare", "value": "answer", "at_most": 10}
    task = simple(output={"format": "number"}, constraints=[rule])
    question = task.problem_from_text("How many?")
    answer = task.parse(question, "It is \\boxed{12}")

    assert answer == "12"
    assert [violation.penalty for violation in violations_of(task.constraints, question, answer)] == [
        pytest.approx(0.2)
    ]
    assert task.render(question, answer) == "#### 12"


def test_text_is_the_whole_completion():
    assert simple().parse(None, "  yes\n") == "yes"
    assert simple().parse(None, " \n") is None


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**6), 10**6)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


formats = st.sampled_from(
    [{"format": "json"}, {"format": "number"}, {"format": "choice", "choices": ["yes", "no"]}, {"format": "text"}]
)
words = st.sampled_from(
    ['{"a":', "{", "}", "[", "]", '"', ":", "1", "####", "answer is", "yes", "NaN", "\\", "\n", " "]
)


@given(formats, st.text() | st.lists(words, max_size=40).map("".join))
def test_parse_is_total_and_canonical(output, text):
    task = simple(output=output)
    answer = task.parse(None, text)

    if answer is not None:
        assert task.parse(None, task.render(None, answer)) == answer


def test_votes_count_by_the_declared_value(problem):
    keys = {
        task_answer: shop().vote_key(problem, json.loads(task_answer))
        for task_answer in ['{"refund": 5, "x": 1}', '{"refund": 5.0}', '{"x": 1}', "{}"]
    }

    assert keys['{"refund": 5, "x": 1}'] == keys['{"refund": 5.0}'] == "5"
    assert len(set(keys.values())) == 3


# ---- labels ----------------------------------------------------------------------------------------------------------


def verdict_of(task, row, text):
    problem, gold = task.problem_and_gold(row, "row 1")
    return label(task, problem, gold, text).verdict


@pytest.mark.parametrize(
    ("rule", "wanted", "answer", "right"),
    [
        ({"match": "number"}, "$1,080", {"v": 1080}, True),
        ({"match": "number", "tolerance": 0.5}, 10, {"v": 10.5}, True),
        ({"match": "number", "tolerance": 0.5}, 10, {"v": 10.51}, False),
        ({"match": "number"}, 10, {"v": True}, False),
        ({"match": "exact"}, "Yes", {"v": " Yes "}, True),
        ({"match": "exact", "ignore_case": True}, "Yes", {"v": "yes"}, True),
        ({"match": "exact"}, 1, {"v": 1.0}, True),
        ({"match": "exact"}, "5.0", {"v": 5}, True),
        ({"match": "exact"}, "05", {"v": "5"}, False),
        ({"match": "set"}, ["a", "b"], {"v": ["b", "a", "a"]}, True),
        ({"match": "set"}, ["a"], {"v": "a"}, False),
        ({"match": "json"}, {"x": [1, 2]}, {"v": {"x": [1.0, 2]}}, True),
        ({"match": "json"}, {"x": [1, 2]}, {"v": {"x": [2, 1]}}, False),
        ({"match": "exact"}, "Yes", {"other": "Yes"}, False),
    ],
)
def test_matching(rule, wanted, answer, right):
    task = simple(output={"format": "json"}, gold={"field": "gold", "value": "answer.v", **rule})
    verdict = verdict_of(task, {"question": "?", "gold": wanted}, json.dumps(answer))

    assert verdict == ("correct" if right else "incorrect")


@pytest.mark.parametrize(
    ("output", "wanted", "text"),
    [
        ({"format": "number"}, "42", "#### 42"),
        ({"format": "number"}, 0.5, "#### 1/2"),
        ({"format": "choice", "choices": ["Yes", "no"]}, "yes", "#### YES"),
        ({"format": "choice", "choices": ["1", "2"]}, 2, "#### 2"),
        ({"format": "text"}, 42, "42"),
    ],
)
def test_exact_gold_is_met_by_the_answer_that_is_read(output, wanted, text):
    task = simple(output=output, gold={"field": "gold"})

    assert verdict_of(task, {"question": "?", "gold": wanted}, text) == "correct"


@pytest.mark.parametrize(
    ("output", "wanted", "words"),
    [
        ({"format": "number"}, "forty", "row 1: field 'gold' must be a number, as answers are; got 'forty'"),
        ({"format": "choice", "choices": ["yes", "no"]}, "maybe", "must be one of the choices yes, no"),
    ],
)
def test_gold_that_no_answer_can_meet_is_refused(output, wanted, words):
    with pytest.raises(TaskDataError, match=words):
        simple(output=output, gold={"field": "gold"}).problem_and_gold({"question": "?", "gold": wanted}, "row 1")


def test_the_reason_tells_text_from_numbers():
    task = simple(output={"format": "json"}, gold={"field": "gold", "value": "answer.v", "match": "json"})
    problem, gold = task.problem_and_gold({"question": "?", "gold": 42}, "row 1")

    assert label(task, problem, gold, '{"v": "42"}').reason == 'answered "42", not 42'


def test_a_row_without_gold_is_unlabeled():
    problem, gold = shop().problem_and_gold({**ROWS[0], "expected": None}, "row 1")

    unlabeled = label(shop(), problem, gold, '{"refund": 5}')
    assert (unlabeled.verdict, unlabeled.reason) == (Verdict.UNLABELED, "no reference answer in the data row")


def test_a_task_without_gold_labels_nothing_unless_it_says_so():
    problem, gold = simple().problem_and_gold({"question": "?"}, "row 1")

    assert label(simple(), problem, gold, "yes").verdict is Verdict.UNLABELED


def test_answers_compete_unless_constraints_say_which_are_right():
    assert shop().defaults.answers_compete
    assert not shop(labels="constraints").defaults.answers_compete


def test_labels_by_constraints():
    """The limit is broken by half: 2.0 * 0.5 of at most 2.0 + 1.0 (the schema)."""
    task = shop(labels="constraints")
    problem, gold = task.problem_and_gold(ROWS[0], "row 1")
    labels = [label(task, problem, gold, text) for text in ('{"refund": 5}', '{"refund": 15}', "hello")]

    assert [each.verdict for each in labels] == [Verdict.CORRECT, Verdict.INCORRECT, Verdict.INCORRECT]
    assert [each.violation_score for each in labels] == [0.0, pytest.approx(1 / 3), 1.0]
    assert [each.parts for each in labels] == [
        {"limit": 0.0, "schema": 0.0},
        {"limit": pytest.approx(1 / 3), "schema": 0.0},
        {"limit": pytest.approx(2 / 3), "schema": pytest.approx(1 / 3)},
    ]


# ---- constraints -----------------------------------------------------------------------------------------------------


def test_schema_faults_are_violations_and_not_a_refusal(problem):
    (violation,) = [
        violation
        for violation in violations_of(shop().constraints, problem, {"refund_": 1})
        if violation.constraint == "schema"
    ]

    assert (violation.message, violation.penalty) == ("answer: 'refund' is a required property", pytest.approx(0.5))


def test_python_functions_stand_beside_rules(problem):
    loud = Constraint(name="loud", check=lambda problem, answer: [Finding(penalty=0.5)], message="too loud")
    task = DeclaredTask(SHOP, constraints=[loud])

    assert [violation.constraint for violation in violations_of(task.constraints, problem, {"refund": 11})] == [
        "limit",
        "loud",
    ]


@given(json_values)
def test_any_answer_can_be_checked_and_counted(answer):
    problem, _ = shop().problem_and_gold(ROWS[0], "row 1")

    assert all(
        violation.penalty > 0 and violation.message for violation in violations_of(shop().constraints, problem, answer)
    )
    assert shop().vote_key(problem, answer)


# ---- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"nmae": "x"}, "nmae: unknown key"),
        ({"prompt": "no field"}, "prompt: the prompt needs at least one field"),
        ({"output": {"format": "choice"}}, "output: format choice needs choices"),
        ({"output": {"format": "choice", "choices": ["A", "a"]}}, "output: choices must be different"),
        ({"output": {"format": "text", "schema": {}}}, "output: schema goes with format json"),
        ({"output": {"format": "pattern"}}, "output: format pattern needs patterns"),
        ({"output": {"patterns": ["x"]}}, "output: format pattern needs patterns, and no other format has them"),
        ({"output": {"format": "pattern", "patterns": ["(?=x)"]}}, "output.patterns.0: pattern '(?=x)' is refused"),
        ({"output": {"choices_field": "options"}}, "output: choices_field goes with format choice"),
        ({"output": {"format": "json", "schema": {"type": "objekt"}}}, "output.schema: type"),
        ({"constraints": [{"name": "a", "rule": "compare", "value": "answer"}]}, "constraints.0: give at least one of"),
        ({"constraints": [{"name": "a", "rule": "holds", "that": "answer.x"}] * 2}, "'a' occurs twice"),
        ({"constraints": [{"name": "a", "rule": "holds", "that": "problem.pad == `1`"}]}, "add it to data.fields"),
        ({"feedback": "Try again."}, "feedback must contain {rules}"),
        ({"vote": "answr.x"}, "vote: expression 'answr.x' starts at 'answr'"),
        ({"gold": {"field": "e", "tolerance": 1.0}}, "gold: tolerance goes with match number"),
        ({"gold": {"field": "e", "by_kind": {"sums": {}}}}, "gold.by_kind needs data.kind"),
        ({"gold": None, "labels": "gold"}, "labels: gold needs a gold section"),
        ({"constraints": [], "output": {}, "gold": None, "labels": "constraints"}, "needs at least"),
        ({"data": {"fields": ["codes", "source_id"]}}, "'source_id' is reserved"),
    ],
)  # fmt: skip
def test_mistakes_are_named_with_key_value_and_reason(changes, words):
    with pytest.raises(ConfigError) as caught:
        shop(**changes)

    assert words in str(caught.value)


def test_the_feedback_is_the_tasks_own(problem):
    task = shop(feedback="{rules}\nReply with {} as JSON.")
    candidate = Candidate(candidate_id="c", task="shop", problem_id="p", generator="g", text='{"refund": 20}')
    best = ScoredCandidate(candidate=candidate, report=check_candidate(task, problem, candidate), energies=None)

    *_, last = feedback_messages(task, problem, best)

    (violation,) = best.report.violations
    assert last["content"] == f"- {violation.message}\nReply with {{}} as JSON."


def test_every_mistake_is_listed_at_once():
    with pytest.raises(ConfigError) as caught:
        shop(instructions=5, vote="x", output={"format": "xml"})

    assert len(str(caught.value).splitlines()) == 4


# ---- patterns, formulas, choices by row ------------------------------------------------------------------------


BRACKETS = {"format": "pattern", "patterns": [r"\[\[(.*?)\]\]", r"<(\w+)>"]}


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("[[A]] or rather [[ B ]]", "B"),
        ("<A>, in brackets [[C]]", "C"),
        ("<A> then <B>", "B"),
        ("[[A]], as [[]]", "A"),
        ("none at all", None),
        ("[[ ]]", None),
    ],
    ids=["last match", "first pattern", "next pattern", "empty match", "no match", "blank"],
)
def test_the_answer_is_the_last_match_of_the_first_pattern_that_matches(text, answer):
    assert simple(output=BRACKETS).parse(None, text) == answer


@pytest.mark.parametrize(("pattern", "answer"), [("(?s).*", "two\nlines"), ("x{0}", None), ("[^\\s\\S]", None)])
def test_patterns_that_match_everything_or_nothing(pattern, answer):
    task = simple(output={"format": "pattern", "patterns": [pattern]})

    assert task.parse(None, " two\nlines ") == answer


def test_a_pattern_whose_matches_read_too_much_finds_no_answer():
    """Each of 20,000 matches looks for a b in all of the rest."""
    task = simple(output={"format": "pattern", "patterns": ["a.*b|a"]})

    assert task.parse(None, "a" * 20_000) is None


@pytest.mark.parametrize(
    ("text", "verdict"), [("[[ x + 1 ]]", "correct"), ("[[1+x]]", "correct"), ("[[x]]", "incorrect")]
)
def test_formulas_are_compared_as_in_math(text, verdict):
    task = simple(output=BRACKETS, gold={"field": "gold", "match": "latex"})

    assert verdict_of(task, {"question": "?", "gold": "x+1"}, text) == verdict


@pytest.mark.parametrize(("kind", "verdict"), [("sums", "correct"), ("words", "incorrect"), ("", "incorrect")])
def test_answers_are_compared_by_kind(kind, verdict):
    gold = {"field": "gold", "by_kind": {"sums": {"match": "number"}}}
    task = simple(output=BRACKETS, gold=gold, data={"kind": "kind"})

    assert verdict_of(task, {"question": "?", "kind": kind, "gold": "0.5"}, "[[1/2]]") == verdict


def test_answers_that_differ_in_whitespace_are_one_answer():
    task = simple(output=BRACKETS, gold={"field": "gold", "ignore_space": True})
    problem, gold = task.problem_and_gold({"question": "?", "gold": "All are."}, "row 1")

    assert task.judge(problem, gold, "[[All  are]]").verdict == "correct"
    assert task.vote_key(problem, "All are.") == task.vote_key(problem, "Allare")


LETTERS = {"format": "choice", "choices": ["A", "B", "C"], "choices_field": "letters"}


@pytest.mark.parametrize(
    ("letters", "answer"), [(["A", "B", "C"], "C"), (["A", "B"], None), (["X"], None), ("ABC", None), ([], None)]
)
def test_a_row_with_fewer_options_allows_only_these(letters, answer):
    """A row whose column is no list, or names none of the task's choices, has no answer."""
    task = simple(output=LETTERS)
    problem, _ = task.problem_and_gold({"question": "?", "letters": letters}, "row 1")

    assert task.parse(problem, "The answer is C") == answer
