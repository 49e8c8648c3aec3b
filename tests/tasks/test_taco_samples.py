"""Sample inputs and outputs in statements."""

import pytest

from raydebm.tasks.taco.comparison import same_output
from raydebm.tasks.taco.public_tests import allows_any_answer, samples_in
from raydebm.user_files import read_json_lines

FORMAT = "Add.\n\n-----Input-----\n\nTwo numbers.\n\n-----Output-----\n\nOne number.\n\n"


@pytest.mark.parametrize(
    "shown",
    [
        "-----Examples-----\nInput\n1 2\n\nOutput\n3\n",
        "----- Sample Input 1 ------ \n1 2\n----- Sample Output 1 ------ \n3\n----- explanation 1 ------\n1 and 2\n",
        "**Sample Input:**\n```\n1 2\n```\n**Sample Output:**\n```\n3\n```\n",
        "-----Example Input-----\n1 2\n-----Example Output-----\n3\n-----Note-----\n\nNone\n",
        "Examples\n\nInput\n1 2\nOutput\n3\n-----Note-----  In the first\nIt is 3.\n",
        "Example\n\nInput\n1 2\nOutput\n3\n\nIn this example the sum of 1 and 2 is 3.\n",
    ],
)
def test_every_way_of_writing_them(shown):
    assert list(samples_in(FORMAT + shown)) == [("1 2", "3")]


def test_several_pairs_with_lines_of_their_own():
    text = FORMAT + "-----Examples-----\nInput\n2\n\na b\nOutput\nb\n\na\n\nInput\n0\nOutput\n-\n"
    assert list(samples_in(text)) == [("2\n\na b", "b\n\na"), ("0", "-")]


@pytest.mark.parametrize(
    "text",
    [
        FORMAT,
        "",
        FORMAT + "-----Example-----\nInput\n1 2\n",
        FORMAT + "-----Example-----\nOutput\n3\nInput\n1 2\n",
        "-----Example-----\nInput\nThe first line of the input has two numbers.\nOutput\nOne number.\n",
        "-----Example-----\nInput\n" + "1" * 20_001 + "\nOutput\n3\n",
    ],
)
def test_nothing_that_is_no_pair(text):
    assert list(samples_in(text)) == []


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("If there are several answers, print any of them.", True),
        ("If there are multiple solutions, you may print any.", True),
        ("Print the numbers in any order.", True),
        ("You can output each letter in any case.", False),
        ("In how many ways can he do it? Print any number modulo 7.", False),
    ],
)
def test_statements_that_allow_more_than_one_output(statement, expected):
    assert allows_any_answer(statement) is expected


def test_the_samples_of_tacos_test_statements_are_the_recorded_ones(shared_data):
    """Those of 917 statements, which somebody else's reader took out of the same text."""
    rows = [row for _, row in read_json_lines(str(shared_data / "code" / "problems_taco_test1000.jsonl.gz"))]
    recorded = [row for row in rows if row["sample_io"]]

    def is_same(row):
        samples = list(samples_in(row["question"].replace("Use Standard Input format\nANSWER:", "")))
        return len(samples) == len(row["sample_io"]) and all(
            same_output(mine, known[kind])
            for pair, known in zip(samples, row["sample_io"], strict=True)
            for mine, kind in zip(pair, ("input", "output"), strict=True)
        )

    assert sum(map(is_same, recorded)) >= 0.99 * len(recorded)
