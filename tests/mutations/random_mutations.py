"""Apply random mutations to the packages that decide, and run the first lane's tests that execute the mutated line.

    pytest -n 2 --dist loadscope --lane first --cov raydebm --cov-branch --cov-context test    # needs pytest-cov
    python tests/mutations/random_mutations.py .coverage --count 200 --seed 0

Prints each survivor, and the share killed. It is a lower bound: at most ``MAX_TESTS`` tests are run for a mutation, and
a line that runs only in another process counts as one that no test executes.
"""

import argparse
import ast
import os
import random
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from coverage import CoverageData
from run import FAILED, PASSED, ROOT, Copies, Mutation, say

PACKAGES = ("decision", "scorer", "evaluation")
MAX_TESTS = 60
OPERATORS: dict[type[ast.AST], tuple[str, str]] = {
    ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="), ast.NotEq: ("!=", "=="), ast.Is: ("is", "is not"), ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"), ast.NotIn: ("not in", "in"),
    ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "/"), ast.Div: ("/", "*"), ast.Pow: ("**", "*"),
    ast.And: ("and", "or"), ast.Or: ("or", "and"),
}  # fmt: skip
NAMES = {"min": "max", "max": "min", "any": "all", "all": "any", "argmin": "argmax", "argmax": "argmin"}


@dataclass(frozen=True, slots=True, kw_only=True)
class AtPlace(Mutation):
    """Replacement of ``text[start:end]``, whose text may occur elsewhere too."""

    line: int
    start: int
    end: int

    def applied(self, text: str) -> str:
        return text[: self.start] + self.new + text[self.end :]


class Mutations(ast.NodeVisitor):
    """Every mutation of a file."""

    def __init__(self, file: Path) -> None:
        self.file, self.source, self.found = file, file.read_text(encoding="utf-8"), list[AtPlace]()
        self.lines = self.source.splitlines(keepends=True)
        self.visit(ast.parse(self.source))

    def visit(self, node: ast.AST) -> None:
        match node:
            case ast.Compare():
                for left, operator, right in zip(
                    [node.left, *node.comparators], node.ops, node.comparators, strict=False
                ):
                    self.operator(left, operator, right)
            case ast.BinOp():
                self.operator(node.left, node.op, node.right)
            case ast.BoolOp():
                self.operator(node.values[0], node.op, node.values[1])
            case ast.UnaryOp(op=ast.Not()):
                self.add(self.start(node), self.start(node.operand), "")
            case ast.Constant(value=bool()):
                self.add(self.start(node), self.end(node), str(not node.value))
            case ast.Constant(value=int() | float()):
                self.add(self.start(node), self.end(node), repr(node.value + 1))
            case ast.If() | ast.IfExp():
                start, end = self.start(node.test), self.end(node.test)
                self.add(start, end, f"not ({self.source[start:end]})")
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name in NAMES:
                self.add(self.end(node.func) - len(name), self.end(node.func), NAMES[name])
        for part in ast.iter_child_nodes(node):
            if not isinstance(part, ast.arg) and part not in self.unread(node):
                self.visit(part)

    def unread(self, node: ast.AST) -> list[ast.AST | None]:
        """Annotations, and arguments of a class's decorator: frozen, slots."""
        annotations = [getattr(node, name, None) for name in ("annotation", "returns")]
        return [*annotations, *(node.decorator_list if isinstance(node, ast.ClassDef) else ())]

    def operator(self, left: ast.AST, operator: ast.AST, right: ast.AST) -> None:
        old, new = OPERATORS.get(type(operator), ("", ""))
        place = self.source.find(old, self.end(left), self.start(right)) if old else -1
        if place >= 0:
            self.add(place, place + len(old), new)

    def add(self, start: int, end: int, new: str) -> None:
        line, file = self.source.count("\n", 0, start) + 1, str(self.file.relative_to(ROOT))
        old = self.source[start:end]
        self.found.append(AtPlace(id=f"{file}:{line}", file=file, old=old, new=new, line=line, start=start, end=end))

    def start(self, node: ast.AST) -> int:
        return self.place(node.lineno, node.col_offset)  # type: ignore[attr-defined]

    def end(self, node: ast.AST) -> int:
        return self.place(node.end_lineno, node.end_col_offset)  # type: ignore[attr-defined]

    def place(self, line: int, column: int) -> int:
        """ast counts columns in bytes of UTF-8."""
        return len("".join(self.lines[: line - 1])) + len(self.lines[line - 1].encode()[:column].decode())


def every_mutation() -> Iterator[AtPlace]:
    for package in PACKAGES:
        for file in sorted((ROOT / "raydebm" / package).rglob("*.py")):
            yield from Mutations(file).found


def tests_of(mutation: AtPlace, data: CoverageData) -> list[str]:
    """Tests that execute the line, or, where it runs at import, any line of the file; those of its folder first."""
    by_line = data.contexts_by_lineno(str(ROOT / mutation.file))
    contexts = {context.split("|")[0] for context in by_line.get(mutation.line, ())}
    if contexts == {""}:
        contexts = {context.split("|")[0] for several in by_line.values() for context in several}
    folder = f"tests/{mutation.file.split('/')[1]}"
    return sorted(contexts - {""}, key=lambda test: (not test.startswith(folder), test))[:MAX_TESTS]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("coverage", type=Path)
    for option, default in (("--count", 200), ("--seed", 0), ("--workers", 2)):
        parser.add_argument(option, type=int, default=default)
    options = parser.parse_args()
    data = CoverageData(str(options.coverage))
    data.read()
    os.environ.update(HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false", OMP_NUM_THREADS="1")
    with tempfile.TemporaryDirectory(prefix="mutations-") as folder:
        copies = Copies(Path(folder), options.workers)

        def verdict(mutation: AtPlace) -> str:
            tests = tests_of(mutation, data)
            code = copies.outcome(tests, mutation)[0] if tests else PASSED
            result = {PASSED: "survived" if tests else "no test", FAILED: "killed"}.get(code, "no end")
            if result != "killed":
                say(f"{result}: {mutation.id}: {mutation.old!r} -> {mutation.new!r}")
            return result

        chosen = random.Random(options.seed).sample(list(every_mutation()), options.count)
        with ThreadPoolExecutor(options.workers) as pool:
            verdicts = list(pool.map(verdict, chosen))
    say(", ".join(f"{verdicts.count(each)} {each}" for each in ("killed", "survived", "no test", "no end")))


if __name__ == "__main__":
    main()
