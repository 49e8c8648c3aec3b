"""Rules that are read from a question: what they accept, what they call wrong, and where they prove something."""

import pytest

from raydebm.tasks.reasoning_gym.rules import READERS, read_puzzle
from raydebm.tasks.reasoning_gym.rules.arithmetic import ExpressionError, evaluate
from raydebm.tasks.reasoning_gym.rules.filling import count_fillings
from raydebm.tasks.reasoning_gym.rules.moves import fewest_moves

FORMAT = "\n\nFinal answer format instructions:\n1. Provide your solution as a arithmetic expression (no '=' sign)."
COUNTDOWN = f"Calculate 6 using all of these numbers: 1, 2, 3.\nEach number may be used at most once.{FORMAT}"
PUZZLE24 = f"Make 24 using 4, 6, 1, 1. You can only use each number once. You can use the operators +, -, *, /.{FORMAT}"
FACTORS = "Find the prime factorization of 12. Write the factors separated by \N{MULTIPLICATION SIGN} (Example: ...)"
EQUATION = "Determine the value of c that satisfies: -4*c - 1 = 11"
CRYPTARITHM = (
    "Solve this cryptarithm:\n\n   AB\n+   B\n-----\n   CD\n\nEach letter stands for a unique digit (0-9). No leading "
    "letter can be zero."
)
GRAPH = (
    "Please provide a coloring for this graph such that every vertex is not connected to a vertex of the same color. "
    "The graph has these properties:\n\nVertices: [0, 1, 2]\nEdges: [(0, 1), (1, 2)]\nPossible colors: [1, 2]\n\n"
    "Return your solution as a JSON map of vertices to colors."
)
PALINDROME = (
    "Your task is, given a list of letters, to form a valid palindrome.\n\n"
    "Now, form a valid palindrome using the following letters: b, a, a"
)
LADDER = "Transform the word ladder 'COLD' to 'WARD' by changing one letter at a time.\nProvide your answer as ..."
JUGS = (
    "You are a police officer. A maniac has planted a bomb.\n\n"
    "The empty jugs hold this many litres of water: A:3, B:5\nAnd your target is: 4 litres.\n\n"
    "How do you defuse the bomb?"
)
HANOI = (
    "Solve the Tower of Hanoi problem with 2 disks and 3 pegs.\nMove all disks from Peg 1 to Peg 3 following the rules:"
)
LOCK = (
    "In front of you are some buttons, a light, and a number. The light will toggle.\n\nStart: 0 (red)\nTarget: 4\n"
    "Buttons:\nA: Add 2 (when any)\nB: Multiply 2 (when green)\nC: Add 1 (when red)"
)
PATH = (
    "Your task is to find the shortest path from the start to the destination point in a grid.\n\n"
    "Now, find the length of the shortest path from * to # in the following grid:\n* O O\nX X O\n# O O"
)
NO_PATH = PATH.replace("X X O", "X X X")
KNIGHTS = (
    "Knight Swap Challenge:\n\n```\n    A   B   C\n   ------------\n3 | w |   |   |\n   ------------\n"
    "2 |   |   | B |\n   ------------\n1 | . | . |   |\n   ------------\n```\n\nRules:\n"
    "3. w moves first, then players alternate\n"
)
POSSIBLE_KNIGHTS = (
    "Knight Swap Challenge:\n\n```\n    A   B   C   D\n   ----------------\n3 |   | . |   | B |\n   ----------------\n"
    "2 | . | w |   | . |\n   ----------------\n1 | B | w | . |   |\n   ----------------\n```\n\nRules:\n"
    "3. B moves first, then players alternate\n"
)
POSSIBLE_ANSWER = (
    '["B,A1,B3", "w,B1,D2", "B,B3,C1", "w,D2,B3", "B,C1,A2", "w,B3,A1", "B,D3,C1", "w,B2,D3", "B,C1,B3", "w,D3,C1", '
    '"B,B3,D2", "w,C1,B3", "B,D2,B1", "w,B3,D2", "B,A2,C1", "w,D2,B3", "B,C1,D3", "w,B3,C1", "B,D3,B2", "w,C1,D3"]'
)
RUSH = (
    "Move the red car (AA) to the exit on the right.\nSpecify moves in the format: 'F+1'\n\n"
    "Board:\n......\n....B.\nAA..B.\n......\n......\n.....x"
)
MINI_SUDOKU = (
    "In 4x4 Mini Sudoku:\n- Each row ...\nSolve this 4x4 Mini Sudoku puzzle:\n1 _ 3 4\n3 4 1 2\n2 1 4 3\n4 3 2 _\n"
    "Format your response as the puzzle above"
)
OPEN_SUDOKU = MINI_SUDOKU.replace("1 _ 3 4\n3 4 1 2\n2 1 4 3\n4 3 2 _", "_ _ _ _\n_ _ _ _\n_ _ _ _\n_ _ _ _")
SUDOKU_ROWS = [
    "1 3 8 9 2 5 6 7 4",
    "5 6 4 8 3 7 1 9 2",
    "7 9 2 4 6 1 8 3 5",
    "8 1 5 3 9 4 7 2 6",
    "9 2 3 7 1 6 5 4 8",
    "4 7 6 2 5 8 3 1 9",
    "2 4 1 6 8 3 9 5 7",
    "3 8 9 5 7 2 4 6 1",
    "6 5 7 1 4 9 2 8 3",
]
SUDOKU = "Solve this Sudoku puzzle:\n_" + "\n".join(SUDOKU_ROWS)[1:] + "\nRespond with only your answer"
FUTOSHIKI = (
    "Solve the following 4x4 Futoshiki puzzle:\n\n1   3   _ > _\n             \n_   _   _   _\n             \n"
    "2   _   _   _\n             \n_   _   3   _\n\nEnsure your answer follows the same format as the puzzle above"
)
FUTOSHIKI_ANSWER = "1   3   4 > 2\n\n3   1   2   4\n\n2   4   1   3\n\n4   2   3   1"
QUEENS = (
    "Your job is to complete an n x n chess board with n Queens in total, such that no two attack each other.\n\n"
    "Given the below board of size 4 x 4 your job is to place 3 queen(s) on the board such that no two queens attack "
    "each other.\n_ Q _ _\n_ _ _ _\n_ _ _ _\n_ _ _ _"
)
TIMES = " \N{MULTIPLICATION SIGN} "

RIGHT = {
    "countdown": [(COUNTDOWN, "1 + 2 + 3"), (COUNTDOWN, "(3*2)/1")],
    "puzzle24": [(PUZZLE24, "6 * 4 * 1 / 1")],
    "prime_factorization": [(FACTORS, TIMES.join("322")), (FACTORS, TIMES.join("223"))],
    "simple_equations": [(EQUATION, "-3")],
    "cryptarithm": [(CRYPTARITHM, "A=1,B=5,C=2,D=0"), (CRYPTARITHM, "D=2, C=4, B=6, A=3")],
    "graph_color": [(GRAPH, '{"0": 1, "1": 2, "2": 1}'), (GRAPH, '{"2": 2, "1": 1, "0": 2}')],
    "palindrome_generation": [(PALINDROME, "aba")],
    "word_ladder": [(LADDER, "COLD,CORD,WORD,WARD")],
    "jugs": [(JUGS, '["fill B", "pour B->A", "empty A", "pour B->A", "fill B", "pour B->A"]')],
    "tower_of_hanoi": [
        (HANOI, "Move disk 1 from Peg 1 to Peg 2\nMove disk 2 from Peg 1 to Peg 3\nMove disk 1 from Peg 2 to Peg 3")
    ],
    "quantum_lock": [(LOCK, "A \N{RIGHTWARDS ARROW} B"), (LOCK, "A \N{RIGHTWARDS ARROW} A")],
    "shortest_path": [(PATH, "right right down down left left"), (NO_PATH, "infeasible")],
    # The squares are the path B1, A3 (white), C2 (black), A1: on a path nobody gets past.
    "knight_swap": [(KNIGHTS, "No"), (POSSIBLE_KNIGHTS, POSSIBLE_ANSWER)],
    "rush_hour": [(RUSH, "B-1 A+4"), (RUSH, "BB+2 AA+4")],
    "mini_sudoku": [(MINI_SUDOKU, "1 2 3 4\n3 4 1 2\n2 1 4 3\n4 3 2 1")],
    "sudoku": [(SUDOKU, "\n".join(SUDOKU_ROWS))],
    "futoshiki": [(FUTOSHIKI, FUTOSHIKI_ANSWER)],
    "n_queens": [(QUEENS, "_ Q _ _\n_ _ _ Q\nQ _ _ _\n_ _ Q _")],
}


WRONG = [
    (COUNTDOWN, "1 + 2 + 4", "use each of 1, 2, 3 once"),
    (COUNTDOWN, "1 + 2 + 3 = 6", "one arithmetic expression"),
    (COUNTDOWN, "1 * 2 + 3", "equals 5, not 6"),
    (COUNTDOWN, "1 + 2 + 3 + 3 - 3", "use each of"),
    (COUNTDOWN, "3 / (2 - 2) + 1", "divides by zero"),
    (COUNTDOWN, "__import__('os').getpid() + 6", "one arithmetic expression"),
    (COUNTDOWN, "9**9**9", "one arithmetic expression"),
    (COUNTDOWN, "1+" * 600 + "1", "more than 1000"),
    (COUNTDOWN, "-" * 900 + "6", "uses 6; use each of 1, 2, 3 once"),
    (PUZZLE24, "6 * 4", "use each of 4, 6, 1, 1 once"),
    (FACTORS, "12", "Not prime: 12"),
    (FACTORS, TIMES.join("23"), "multiply to 6, not 12"),
    (FACTORS, "2^2 * 3", "separated by"),
    (EQUATION, "3", "does not satisfy"),
    (EQUATION, "c = -3", "the value of c alone"),
    (CRYPTARITHM, "A=1,B=5,C=2,D=5", "a digit of its own"),
    (CRYPTARITHM, "A=1,B=5,C=3,D=0", "add up to 20, but CD is 30"),
    (CRYPTARITHM, "A=0,B=5,C=1,D=2", "A leads a number"),
    (CRYPTARITHM, "A=1,B=5", "a digit for each of A, B, C, D"),
    (GRAPH, '{"0": 1, "1": 1, "2": 2}', "0 and 1 are joined and both have color 1"),
    (GRAPH, '{"0": 1, "1": 2}', "Vertex 2 must have one of"),
    (GRAPH, '{"0": 1, "1": 2, "2": 3}', "Vertex 2 must have one of"),
    (GRAPH, '{"0": [1], "1": 2, "2": 1}', "Vertex 0 must have one of"),
    (GRAPH, "0: 1, 1: 2, 2: 1", "JSON map"),
    (PALINDROME, "aab", "does not read the same backwards"),
    (PALINDROME, "aa", "exactly the letters b, a, a"),
    (LADDER, "COLD,WORD,WARD", "COLD and WORD do not differ in exactly one letter"),
    (LADDER, "CORD,WORD,WARD", "from COLD to WARD"),
    (JUGS, '["fill B"]', "no jug holds 4 litres (A: 0, B: 5)"),
    (JUGS, '["fill C"]', "Move 1, 'fill C'"),
    (JUGS, '[["fill", "A"]]', "JSON list of moves"),
    (JUGS, "[" * 100_000, "JSON list of moves"),
    (HANOI, "Move disk 2 from Peg 1 to Peg 3", "disk 2 is not on top of Peg 1"),
    (HANOI, "Move disk 1 from Peg 1 to Peg 3\nMove disk 2 from Peg 1 to Peg 3", "disk 2 is larger"),
    (HANOI, "Move disk 1 from Peg 1 to Peg 9", "there are pegs 1 to 3"),
    (HANOI, "Move disk 1 from Peg 1 to Peg 3", "1 disks are not on Peg 3"),
    (
        HANOI,
        "Move disk 1 from Peg 1 to Peg 3\nMove disk 1 from Peg 3 to Peg 2\nMove disk 2 from Peg 1 to Peg 3\n"
        "Move disk 1 from Peg 2 to Peg 3",
        "takes 4 moves; 3 are enough",
    ),
    (LOCK, "A", "ends at 2, not at 4"),
    (LOCK, "C B A C", "4 presses; 2 are enough"),
    (LOCK, "Z", "a sequence of the buttons A, B, C"),
    (PATH, "right right", "does not end at the destination"),
    (PATH, "down", "Step 1, down, leads into a blocked cell"),
    (PATH, "left right right right down down left left", "Step 1, left, leads into a blocked cell or off the grid"),
    (PATH, "right left right right down down left left", "8 steps; 6 are enough"),
    (PATH, "infeasible", "There is a path of 6 steps"),
    (NO_PATH, "right right", "No path leads to the destination"),
    (KNIGHTS, '["w,A3,B1"]', "have not changed places"),
    (KNIGHTS, '["B,C2,A1"]', "Move 1, B from C2 to A1, is not allowed there"),
    (KNIGHTS, '["w,A3,A1"]', "Move 1, w from A3 to A1, is not allowed there"),
    (KNIGHTS, "yes", "must be No, or a JSON list"),
    (POSSIBLE_KNIGHTS, "No", "It is possible, in 20 moves"),
    (RUSH, "A+4", "A+4 is not possible when it is made"),
    (RUSH, "B-1", "not at the exit"),
    (RUSH, "B+4 A+4", "B+4 is not possible"),
    (RUSH, "Z+1", "Z+1 is not possible"),
    (RUSH, "ERROR", "The answer must be moves"),
    (MINI_SUDOKU, "1 3 3 4\n3 4 1 2\n2 1 4 3\n4 3 2 1", "In row 1 a number stands twice"),
    (MINI_SUDOKU, "2 1 3 4\n3 4 1 2\n1 2 4 3\n4 3 2 1", "Row 1, column 1 must stay 1"),
    (MINI_SUDOKU, "1 2 3 4\n3 4 1 2", "the whole grid"),
    (MINI_SUDOKU, "1,2,3,4\n3,4,1,2\n2,1,4,3\n4,3,2,1", "in the layout of the puzzle"),
    (FUTOSHIKI, FUTOSHIKI_ANSWER.replace("4 > 2", "2 > 4"), "Row 1, column 4 must hold less than row 1, column 3"),
    (FUTOSHIKI, FUTOSHIKI_ANSWER.replace("4 > 2", "4   2"), "in the layout of the puzzle"),
    (QUEENS, "_ _ Q _\nQ _ _ _\n_ _ _ Q\n_ Q _ _", "The queen at row 1, column 2 must stay"),
    (QUEENS, "_ Q _ _\n_ _ _ Q\nQ _ _ _\n_ _ _ _", "4 queens, not 3"),
    (QUEENS, "_ Q _ _\n_ _ _ Q\nQ _ _ _\n_ Q _ _", "attack each other"),
    (QUEENS, "[[0, 1], [1, 3]]", "the whole board"),
]


def faults(question, answer):
    reading = read_puzzle(question.strip())
    assert reading is not None
    return [fault.text for fault in reading[1].faults(answer)]


def test_every_kind_of_puzzle_has_an_example_here():
    assert set(RIGHT) == set(READERS)


@pytest.mark.parametrize(
    ("name", "question", "answer"), [(name, *case) for name, cases in RIGHT.items() for case in cases]
)
def test_an_answer_that_keeps_the_rules_has_no_fault(name, question, answer):
    reading = read_puzzle(question.strip())
    assert reading is not None
    assert reading[0] == name
    assert faults(question, answer) == []


@pytest.mark.parametrize(("question", "answer", "text"), WRONG)
def test_a_broken_rule_is_named(question, answer, text):
    assert any(text in fault for fault in faults(question, answer))


@pytest.mark.parametrize("question", [case[0] for cases in RIGHT.values() for case in cases])
@pytest.mark.parametrize(
    "answer", ["", "\0", "[]", "{}", "null", "-1", "1e999", "No", "_", "\n\n", "<answer>", "\ud800"]
)
def test_no_text_raises_and_every_penalty_is_a_share(question, answer):
    reading = read_puzzle(question.strip())
    assert reading is not None
    assert all(0 < fault.penalty <= 1 for fault in reading[1].faults(answer))


@pytest.mark.parametrize("name", sorted(set(READERS) - {"word_ladder"}))
def test_rules_are_exact(name):
    for question, _ in RIGHT[name]:
        reading = read_puzzle(question.strip())
        assert reading is not None
        assert reading[1].exactness().exact


@pytest.mark.parametrize(
    ("question", "note"),
    [
        (LADDER, "English word is not checked"),
        (OPEN_SUDOKU, "several solutions"),
        (MINI_SUDOKU.replace("1 _ 3 4", "1 1 3 4"), "no solution"),
        (EQUATION.replace("-4*c - 1", "c*c - 1"), "not linear"),
        (EQUATION.replace("-4*c - 1 = 11", "c - c = 11"), "does not determine c"),
        (LOCK.replace("Target: 4", "Target: -4"), "no shortest sequence"),
    ],
)
def test_where_rules_prove_nothing_the_reason_is_noted(question, note):
    reading = read_puzzle(question)
    assert reading is not None
    exactness = reading[1].exactness()
    assert (exactness.exact, note in exactness.note) == (False, True)


@pytest.mark.parametrize(
    "question",
    [
        "What is 2 + 2?",
        COUNTDOWN.replace("Calculate", "Compute"),
        HANOI.replace("2 disks", "99 disks"),
        PATH.replace("* O O", "* O *"),
        RUSH.replace("AA", "A."),
        FUTOSHIKI.replace("\n2   _   _   _", ""),
        GRAPH.replace("(1, 2)", "(1, 7)"),
        EQUATION.replace("-4*c", "-4*sin(c)"),
        LOCK.replace("Add 2", "Add two"),
    ],
)
def test_a_question_in_another_wording_has_no_rules(question):
    assert read_puzzle(question.strip()) is None


def test_an_expression_is_computed_exactly():
    assert evaluate("1 / 3 + 2 / 3")[0] == 1


def test_the_numbers_of_an_expression_stand_in_the_order_of_the_text():
    assert evaluate("(5 - 7) * -2")[1] == [5, 7, 2]


@pytest.mark.parametrize("text", ["", "x", "1.5", "True", "2**3", "7 // 2", "f(1)", "1,2", "'1'", "lambda: 1", "5!"])
def test_what_is_no_arithmetic_is_an_error(text):
    with pytest.raises(ExpressionError):
        evaluate(text)


@pytest.mark.parametrize(
    ("disks", "pegs", "moves"), [(1, 3, 1), (3, 3, 7), (7, 3, 127), (3, 4, 5), (5, 4, 13), (7, 4, 25)]
)
def test_the_fewest_moves_of_towers(disks, pegs, moves):
    assert fewest_moves(disks, pegs) == moves


@pytest.mark.parametrize(("givens", "count"), [({}, 2), ({(0, 0): 1}, 1), ({(0, 0): 1, (0, 1): 1}, 0)])
def test_the_ways_to_fill_a_square_of_two(givens, count):
    cells = [(0, 0), (0, 1), (1, 0), (1, 1)]
    groups = [cells[:2], cells[2:], cells[::2], cells[1::2]]
    assert count_fillings(givens, groups, size=2, max_steps=10) == count


def test_a_count_that_takes_too_long_is_not_made():
    cells = [[(row, column) for column in range(9)] for row in range(9)]
    assert count_fillings({}, cells, size=9, max_steps=3) is None
