import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raydebm.evaluation.confounding.style import (
    STYLES,
    code_only,
    explanation_only,
    with_plain_io,
    without,
    without_comments,
    without_headers,
    without_latex,
)

CODE = '''Read both numbers.

```python
import sys
input = sys.stdin.readline


def main():
    """Adds."""
    a, b = map(int, input().strip().split())  # two numbers
    sys.stdout.write(str(a + b) + "\\n")


if __name__ == "__main__":
    main()
```

It is # linear.
'''


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("## Solution\nTwo **bold** words", "Solution\nTwo bold words"),
        ("### Step 1: Add\n2 + 2", "Step 1: Add\n2 + 2"),
        ("- one\n* two\n1. three", "one\ntwo\nthree"),
        ("a\n---\nb", "a\nb"),
        ("#### 18", "#### 18"),
        ("2 * 3 ** 2", "2 * 3 ** 2"),
    ],
    ids=["heading", "step", "bullets", "rule", "answer", "arithmetic"],
)
def test_headers(text, expected):
    assert without_headers(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"\(x = \frac{1}{2}\)", "x = (1)/(2)"),
        (r"$$3 \times 4 \leq 12$$", "3 * 4 <= 12"),
        (r"\text{apples} \cdot 2", "apples * 2"),
        (r"\frac{\text{a}}{b}", "(a)/(b)"),
        ("It costs $5 and $ 3", "It costs $5 and  3"),
        (r"50\%", "50%"),
    ],
    ids=["fraction", "symbols", "text", "nested", "dollars", "percent"],
)
def test_latex(text, expected):
    assert without_latex(text) == expected


def test_input_and_output_become_one_idiom():
    changed = with_plain_io(CODE)

    assert "readline" not in changed
    assert "sys" not in changed
    assert "print(str(a + b))" in changed
    assert "map(int, input().split())" in changed
    assert "__main__" not in changed
    assert "\nmain()\n```" in changed
    assert changed.startswith("Read both numbers.")


def test_an_import_that_is_still_needed_stays():
    code = "```python\nimport sys\nprint(sys.maxsize)\n```\n"

    assert with_plain_io(code) == code


def test_comments_and_docstrings_leave_the_code_only():
    changed = without_comments(CODE)

    assert "two numbers" not in changed
    assert "Adds." not in changed
    assert "It is # linear." in changed
    assert "a, b = map(int, input().strip().split())\n" in changed


def test_a_hash_inside_a_string_is_no_comment():
    assert without_comments('```python\nprint("# 1")  # one\n```\n') == '```python\nprint("# 1")\n```\n'


def test_other_languages_lose_their_comments_too():
    text = "```cpp\n#include <x>\nint a; // one\n/* two */ int b = 'c;\n```\n"

    assert without_comments(text) == "```cpp\n#include <x>\nint a;\n int b = 'c;\n```\n"


def test_a_program_without_fences_is_code():
    program = "import sys\ndef f(x):\n    # doubles\n    return 2 * x\nprint(f(1))\n"

    assert "doubles" not in without_comments(program)
    assert code_only(program) == program
    assert explanation_only(program) is None


def test_code_and_explanation_of_a_text():
    assert code_only("Think.\n```python\nx = 1\n```\nDone.\n```\ny = 2\n```") == "x = 1\ny = 2"
    assert explanation_only("Think.\n```python\nx = 1\n```\nDone.") == "Think.\n\nDone."


def test_a_block_that_was_cut_off_is_code_to_the_end():
    text = "Think.\n```python\nx = 1\ny = 2"

    assert code_only(text) == "x = 1\ny = 2"
    assert explanation_only(text) == "Think."


def test_a_block_in_a_list_is_code_up_to_a_fence_as_deep_as_its_own():
    text = "- Do:\n  ```python\n  x = 1  # adds\n  s = 'a'\n      ```\n  ```\n- Done # here."

    assert "adds" not in without_comments(text)
    assert explanation_only(text) == "- Do:\n\n- Done # here."


def test_json_in_fences_is_no_code():
    text = '```json\n{"reasoning": "**two** \\\\times 3 is six", "answer": "6"}\n```\n'

    assert code_only(text) is None
    assert without_headers(text) == '{"reasoning": "two \\\\times 3 is six", "answer": "6"}\n'
    assert '"two * 3' in without(text, ("headers", "latex"))


def test_prose_around_a_program_is_rewritten_and_the_program_is_not():
    text = "## A\n```python\n## b\n```\n## C\n```python\n## cut"

    assert without_headers(text) == "A\n```python\n## b\n```\nC\n```python\n## cut"


def test_styles_are_taken_out_in_the_order_given():
    assert without(r"## \(x\)", ("headers", "latex")) == "x"
    assert tuple(STYLES) == ("headers", "latex", "io", "comments")


@given(st.text(alphabet="#*_$\\{}`~/ \n\t'\"abc()1=import sys", max_size=300))
def test_no_text_breaks_a_rewriting(text):
    for rewrite in (*STYLES.values(), code_only, explanation_only):
        rewrite(text)


@pytest.mark.parametrize(
    "piece", ["\\frac{", "```\n", "/*", '"""\n', "if __name__ == '__main__':\n ", "sys.stdout.write("]
)
def test_degenerate_texts_take_no_time(piece):
    """In proportion to the length it is a second of this process' own time; by its square it would be many minutes."""
    text = piece * (200_000 // len(piece))
    started = time.thread_time()
    for rewrite in (*STYLES.values(), code_only, explanation_only):
        rewrite(text)

    assert time.thread_time() - started < 20
