"""Any question: which answer a text marks, and when two answers are one."""

import pytest

from raydebm.errors import TaskDataError
from raydebm.tasks.open_question import MAX_ANSWER_CHARS, OpenQuestion, normalised

TASK = OpenQuestion()
PROBLEM = TASK.problem_from_text("Which city is the capital of France?")


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("It is on the Seine.\n#### Paris", "Paris"),
        ("#### Lyon\nNo.\n#### **Paris**.", "Paris"),
        ("#### Step 2: look it up\nThe answer is Paris", "Paris"),
        ("#### C#", "C#"),
        ("#### Paris is the answer", "Paris is the answer"),
        ('{"answer": "Paris"}', "Paris"),
        ("So \\boxed{Paris}", "Paris"),
        ("The answer is Paris", "Paris"),
        ("I think it is Paris", None),
        ("#### " + "x" * (MAX_ANSWER_CHARS + 1), None),
    ],
    ids=["hashes", "the-last", "heading", "sharp", "no-heading", "json", "box", "phrase", "unmarked", "essay"],
)
def test_only_a_marked_short_answer_counts(text, answer):
    assert TASK.parse(PROBLEM, text) == answer


@pytest.mark.parametrize(
    ("first", "second"),
    [("The Eiffel tower.", "eiffel  Tower"), ("$1,080", "1080.0"), ("“Yes”", "yes"), ("\uff21\uff22", "ab")],
    ids=["articles", "numbers", "quotes", "width"],
)
def test_answers_that_mean_the_same_share_a_key(first, second):
    assert normalised(first) == normalised(second)


@pytest.mark.parametrize(
    ("first", "second"), [("5 km", "5 m"), ("-5", "5"), ("no", "yes"), ("NYC", "New York"), ("5%", "5"), ("C++", "C#")]
)
def test_answers_that_may_differ_keep_their_own_keys(first, second):
    assert normalised(first) != normalised(second)


def test_a_source_must_be_given():
    with pytest.raises(TaskDataError, match="no data set of its own"):
        list(TASK.load("test"))
