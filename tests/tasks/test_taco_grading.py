"""Programs against hidden tests: how each ending is graded, and that no program can grade itself."""

import pytest
from task_data import HASTY, PATIENT

from raydebm.tasks.taco.grading import Grade, grade

DOUBLE = {"kind": "stdin", "tests": [{"input": "2\n", "output": "4"}, {"input": "21", "output": "42"}]}
CALLS = {
    "kind": "call",
    "function": "double",
    "tests": [{"input": [2], "output": [4]}, {"input": [21], "output": [42]}],
}
CHECKED = {
    "kind": "assert",
    "function": "double",
    "head": 'from typing import List\n\ndef double(n):\n    """Twice n."""\n',
    "test": "def check(candidate):\n    assert candidate(2) == 4\n    assert candidate(21) == 42\n\ncheck(double)\n",
}
RIGHT = "print(2 * int(input()))"
RIGHT_FUNCTION = "def double(n):\n    return 2 * n"


@pytest.fixture(scope="module")
def graded(isolated):
    sandbox = isolated(PATIENT)

    def run(code, tests, *, hasty=False):
        return grade(code, tests, sandbox=sandbox, limits=HASTY if hasty else PATIENT)

    return run


@pytest.mark.parametrize(
    ("code", "expected", "failed_test"),
    [
        (RIGHT, Grade.PASSED, None),
        ("print(4)", Grade.WRONG_ANSWER, 2),
        ("print(1 / 0)", Grade.RUNTIME_ERROR, 1),
        ("while True: pass", Grade.TIMEOUT, 1),
        ("a = [0] * 10**9", Grade.MEMORY, 1),
        ("while True: print(4)", Grade.OUTPUT_LIMIT, 1),
        ("print(", Grade.SYNTAX_ERROR, 1),
        ("import os\nos._exit(0)", Grade.WRONG_ANSWER, 1),
        ("import sys\nsys.exit(0)\n" + RIGHT, Grade.WRONG_ANSWER, 1),
    ],
)
def test_programs_on_stdin(graded, code, expected, failed_test):
    report = graded(code, DOUBLE, hasty=expected is Grade.TIMEOUT)
    assert (report.grade, report.failed_test) == (expected, failed_test)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (RIGHT_FUNCTION, Grade.PASSED),
        ("class Solution:\n    def double(self, n):\n        return 2 * n", Grade.PASSED),
        ("def double(n):\n    return n + 2", Grade.WRONG_ANSWER),
        ("def double(n):\n    return (2 * n,)", Grade.PASSED),
        ("def double(n):\n    print('noise')\n    return 2 * n", Grade.PASSED),
        ("def triple(n):\n    return 3 * n", Grade.RUNTIME_ERROR),
        ("def double(n):\n    while True: pass", Grade.TIMEOUT),
        ("def double(n):\n    return 'x' * 10**6", Grade.OUTPUT_LIMIT),
    ],
)
def test_functions(graded, code, expected):
    assert graded(code, CALLS, hasty=expected is Grade.TIMEOUT).grade is expected


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (RIGHT_FUNCTION, Grade.PASSED),
        ("    return 2 * n", Grade.PASSED),
        ("def double(n: int) -> List[int]:\n    return 2 * n", Grade.PASSED),
        ("def double(n):\n    return 4", Grade.WRONG_ANSWER),
        ("def double(n):\n    while True: pass", Grade.TIMEOUT),
    ],
)
def test_functions_under_test_code(graded, code, expected):
    assert graded(code, CHECKED, hasty=expected is Grade.TIMEOUT).grade is expected


FORGERIES = {
    "equal to everything": "class E(int):\n    def __eq__(self, other): return True\n"
    "    def __ne__(self, other): return False\n"
    "    __hash__ = None\ndef double(n):\n    return E(7)",
    "equal object": "class E:\n    def __eq__(self, other): return True\ndef double(n):\n    return E()",
    "exit": "import os\ndef double(n):\n    os._exit(0)",
    "exit while loading": "import os\nos._exit(0)",
    "system exit": "import sys\ndef double(n):\n    sys.exit(0)",
    "patched builtins": "import builtins, json\nbuiltins.all = builtins.any = lambda *a: True\n"
    "json.dumps = lambda *a, **k: 'true'\ndef double(n):\n    return 0",
    "patched harness": "import __main__, sys\nfor m in list(sys.modules.values()):\n"
    "    for name in ('encode', '_call', '_say', 'same_value'):\n"
    "        if hasattr(m, name): setattr(m, name, lambda *a, **k: {'value': None})\ndef double(n):\n    return 0",
    "own message": "import os\ndef double(n):\n"
    '    os.write(3, b\'{"id": "", "value": ["i", "0x4"]}\\n\')\n    os._exit(0)',
    "messages in advance": 'import os\nfor _ in range(9): os.write(3, b\'{"done": true, "value": ["i", "0x4"]}\\n\')\n'
    "def double(n):\n    return 0",
    "assertion error swallowed": "AssertionError = None\nimport builtins\nbuiltins.AssertionError = ValueError\n"
    "def double(n):\n    return 0",
}


@pytest.mark.parametrize("tests", [CALLS, CHECKED], ids=["calls", "test code"])
@pytest.mark.parametrize("name", FORGERIES)
def test_no_program_grades_itself(graded, name, tests):
    assert graded(FORGERIES[name], tests, hasty=True).grade is not Grade.PASSED  # some never end


SEARCH = """
# hidden-in-the-source
import gc, sys
frame, places = sys._getframe(), list(gc.get_objects())
while frame:
    places += [frame.f_locals, frame.f_globals]
    frame = frame.f_back
texts = []
for place in places:
    if type(place) in (dict, list, tuple, set):
        texts += [text for text in (place.values() if type(place) is dict else place) if type(text) in (str, bytes)]
texts = [text if type(text) is str else text.decode(errors="replace") for text in texts]
names = {name for name in ("source", "input", "output") for text in texts if "hidden-in-the-" + name in text}
print("found " + " ".join(sorted(names)))
"""


def test_what_is_expected_is_nowhere_in_the_sandbox(graded):
    """A program that searches all memory within its reach finds its own source, its input, and nothing else."""
    shown = {"kind": "stdin", "tests": [{"input": "hidden-in-the-input", "output": "found input source"}]}
    hidden = {"kind": "stdin", "tests": [{"input": "", "output": "hidden-in-the-output"}]}
    assert graded(SEARCH.replace("import gc", "given = input()\nimport gc"), shown).grade is Grade.PASSED
    assert graded(SEARCH.replace("print(", "sys.exit('output' in names)\nprint("), hidden).grade is Grade.WRONG_ANSWER


def test_a_program_that_leaves_files_meets_an_empty_folder_in_the_next_test(graded):
    code = "import os\nn = int(input())\nprint(2 * n if not os.listdir('.') else 'seen')\nopen('f', 'w').close()"
    assert graded(code, DOUBLE).grade is Grade.PASSED


def test_names_of_the_official_prelude_are_there(graded):
    code = (
        "time.time(), random.random()\na: List[int] = list(accumulate([int(stdin.readline())] * 2))\n"
        "print(max(a) + gcd(0, 0) + len(Counter()))"
    )
    assert graded(code, DOUBLE).grade is Grade.PASSED


@pytest.mark.parametrize(
    "code",
    [
        f"import threading\nthreading.stack_size(2**26)\nt = threading.Thread(target=lambda: {RIGHT})\nt.start()",
        "import atexit, io, sys\nout = io.StringIO()\natexit.register(lambda: sys.stdout.write(out.getvalue()))\n"
        "out.write(str(2 * int(input())))",
        f"import sys\nsys.setrecursionlimit(10**6)\ndef f(n): return 0 if n == 0 else f(n - 1)\nf(50000)\n{RIGHT}",
        f"def main():\n    {RIGHT}\nif __name__ == '__main__':\n    main()",
        f"def f(n): return 0 if n == 0 else f(n - 1)\nf(997)\n{RIGHT}",
        "n = int(open(0).read())\nprint(2 * n)",
    ],
    ids=["thread", "at exit", "recursion", "recursion to the limit", "main", "open(0)"],
)
def test_what_programs_of_contests_do_works(graded, code):
    assert graded(code, DOUBLE).grade is Grade.PASSED


def test_grades_are_ordered_by_severity():
    assert [member.severity for member in Grade] == list(range(8))
