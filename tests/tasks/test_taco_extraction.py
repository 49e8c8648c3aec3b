"""The program in a completion."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from task_data import cpu_within

from raydebm.tasks.taco.extraction import fenced, find_program, normal_form

PROGRAM = "n = int(input())\nprint(n)"


@pytest.mark.parametrize(
    "text",
    [
        f"```python\n{PROGRAM}\n```",
        f"Sure!\n\n```py\n{PROGRAM}\n```\nIt runs in O(1).",
        f"~~~python3\n{PROGRAM}\n~~~",
        f"   ```Python\n{PROGRAM}\n   ```",
        f"~~~python\n{PROGRAM}",
        f"```\n{PROGRAM}\n```",
        f"```python\r\n{PROGRAM}\r\n```",
        PROGRAM,
        f"\n\n{PROGRAM}\n\n",
    ],
)
def test_the_program_is_found(text):
    assert find_program(text) == PROGRAM


def test_a_continuation_keeps_the_indentation_that_is_its_own():
    assert find_program("```python\n    return x\n```") == "    return x"
    assert find_program("- Code:\n  ```python\n      return x\n  ```") == "    return x"


DOCUMENTED = 'def f(x):\n    """One more.\n\n    ```\n    f(1)\n    ```\n    """\n    return x + 1'


@pytest.mark.parametrize("text", [DOCUMENTED, f"```python\n{DOCUMENTED}\n```"])
def test_fences_in_a_docstring_are_part_of_the_program(text):
    assert find_program(text) == DOCUMENTED


def test_the_last_complete_python_block_counts():
    assert find_program(f"```python\nfirst()\n```\nBetter:\n```python\n{PROGRAM}\n```\nOutput:\n```\n3\n```") == PROGRAM


def test_a_cut_off_block_counts_only_without_a_complete_one():
    assert find_program(f"```python\n{PROGRAM}\n```\nor\n```python\nprint(") == PROGRAM
    assert find_program(f"```python\n{PROGRAM}") == PROGRAM


@pytest.mark.parametrize(
    "head", ["```python\n", "```\n", "```python\ndef similar(x):\n    return 1\n\nNow the task:\n"]
)
def test_a_block_without_an_end_does_not_swallow_the_next_one(head):
    assert find_program(f"{head}```python\n{PROGRAM}\n```\nDone.") == PROGRAM


def test_the_last_block_that_defines_the_function_counts():
    text = "```python\ndef f(x):\n    return x\n```\nUse it:\n```python\nprint(f(3))\n```"
    assert find_program(text, function="f") == "def f(x):\n    return x"
    assert find_program(text) == "print(f(3))"
    assert find_program(text, function="g") == "print(f(3))"


def test_blocks_of_other_languages_are_no_program():
    assert find_program("```cpp\nint main() {}\n```") is None


def test_thinking_is_not_the_answer():
    assert find_program(f"<think>```python\nwrong()\n```</think>\n```python\n{PROGRAM}\n```") == PROGRAM


def test_code_without_fences_starts_at_its_first_line_of_code():
    text = "Here is the program:\n\nimport sys\nprint(sys.stdin.read())"
    assert find_program(text) == "import sys\nprint(sys.stdin.read())"


HEAD = 'def f(x):\n    """Double it."""\n'


@pytest.mark.parametrize("text", ["    y = 2 * x\n    return y", "\n\n    y = 2 * x\n    return y\n\n"])
def test_text_that_goes_on_with_the_head_counts_whole(text):
    assert find_program(text, function="f", head=HEAD) == "    y = 2 * x\n    return y"


def test_a_helper_below_the_rest_of_the_function_is_no_program_by_itself():
    text = "    return g(x)\n\ndef g(x):\n    return 2 * x"
    assert find_program(text, function="f", head=HEAD) == text


def test_a_whole_function_below_an_indented_remark_is_the_program():
    text = "    y = 1\ndef f(x):\n    return 2 * x"
    assert find_program(text, function="f", head=HEAD) == "def f(x):\n    return 2 * x"


@pytest.mark.parametrize("text", ["    return 2 * x", "    Double it, then return it."])
def test_indented_text_that_no_head_makes_a_program_is_none(text):
    assert find_program(text, function="f", head="" if "*" in text else HEAD) is None


@pytest.mark.parametrize(
    "text",
    ["", "  \n", "yes", "I cannot do this.", "a, b", "42", "```python\n\n```", "def is missing here", "x" * 10**6],
)
def test_words_are_no_program(text):
    assert find_program(text) is None


@given(
    st.lists(st.sampled_from(["print(1)", "x = '''", "'''", "```", "````python", "~~~", "# `", "  y = 2"]), min_size=1)
)
def test_a_fenced_program_reads_back_whatever_fences_it_holds(lines):
    code = "\n".join(lines).strip()
    assert find_program(fenced(code)) == code


def test_deep_indentation_takes_no_long_time():
    with cpu_within(5):
        find_program("\t" * 290 + "```\n" + ("\t" * 290 + "x\n") * 3000)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("x = 1  # one", "x=1"),
        ("print('a')", 'print("a")'),
        ('def f():\n    """Doc."""\n    return 1', "def f():\n\n    return 1"),
        ("if x:\n\ty()", "if x:\n    y()"),
    ],
)
def test_programs_that_mean_the_same_have_one_form(first, second):
    assert normal_form(first) == normal_form(second)


def test_programs_that_differ_have_forms_that_differ():
    assert normal_form("f(a)") != normal_form("f(b)")
