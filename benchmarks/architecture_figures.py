"""How the package is built, in figures: modules per folder, levels of imports, cycles, names, lines, documentation.

    python benchmarks/architecture_figures.py --before b738c25

prints the tables of docs/architecture.md ("The house in figures") as Markdown: the working tree, next to an older
commit. Lines are non-blank ones. The entries of a folder are its modules and its sub-packages, each sub-package
counted as one; an import anywhere in a file counts, also one inside of a function or for types alone.
"""

import argparse
import ast
import subprocess
import tarfile
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
PACKAGE = "raydebm"
LAYERS = tuple(f"{PACKAGE}.{name}." for name in ("config", "cli", "distributed", "pipeline.stages", "pipeline.studies"))
"""A module of these is named after the feature whose settings, verb, Ray shell, stage or study it holds."""
ROLES = frozenset({"protocol", "schema", "routes"})
"""What a package is spoken to by; one module each."""
TASK_ROLES = frozenset({"answers", "child", "sources", "wording"})
"""Modules that a task's package has for the same purpose as another task's."""
Graph = Mapping[str, frozenset[str]]
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Tree:
    """The modules of a package, by dotted name, with their sources."""

    sources: Mapping[str, str]
    packages: frozenset[str]
    """Names of those that are folders."""

    @classmethod
    def read(cls, root: Path) -> "Tree":
        sources, packages = {}, set()
        for file in sorted((root / PACKAGE).rglob("*.py")):
            parts = file.relative_to(root).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            if parts[-1] == "__init__":
                packages.add(name)
            sources[name] = file.read_text(encoding="utf-8")
        return cls(sources, frozenset(packages))

    @cached_property
    def parsed(self) -> dict[str, ast.Module]:
        return {name: ast.parse(source) for name, source in self.sources.items()}

    @cached_property
    def modules(self) -> list[str]:
        """All but the ``__init__`` files."""
        return [name for name in self.sources if name not in self.packages]

    def folder_of(self, module: str) -> str:
        return module.rpartition(".")[0]

    @cached_property
    def modules_per_folder(self) -> Counter[str]:
        return Counter(self.folder_of(module) for module in self.modules)

    @cached_property
    def imports(self) -> dict[str, frozenset[str]]:
        """The modules of the package that each one imports."""
        return {name: frozenset(self._imported(name, tree)) for name, tree in self.parsed.items()}

    def _imported(self, name: str, tree: ast.Module) -> Iterator[str]:
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    longer = f"{node.module}.{alias.name}"
                    yield from {longer if longer in self.sources else node.module} & self.sources.keys() - {name}
            elif isinstance(node, ast.Import):
                yield from {alias.name for alias in node.names} & self.sources.keys() - {name}

    def entries(self, folder: str) -> Graph:
        """The modules and sub-packages of a folder, each with those of them that it imports."""
        depth = folder.count(".") + 2
        graph: dict[str, set[str]] = defaultdict(set)
        for module, imported in self.imports.items():
            if not module.startswith(f"{folder}."):
                continue
            entry = ".".join(module.split(".")[:depth])
            others = {".".join(other.split(".")[:depth]) for other in imported if other.startswith(f"{folder}.")}
            graph[entry] |= others - {entry}
        return {entry: frozenset(others) for entry, others in graph.items()}

    def confusing_modules(self) -> list[str]:
        """Names that several modules have, where neither the layer nor the role of a module explains it."""
        explained = (name for name in self.modules if not name.startswith(LAYERS) and not _has_role(name))
        counts = Counter(name.rpartition(".")[2] for name in explained)
        return sorted(name for name, count in counts.items() if count > 1)

    def functions(self) -> Iterator[tuple[str, Function]]:
        for name, tree in self.parsed.items():
            yield from ((name, node) for node in ast.walk(tree) if isinstance(node, Function))

    def public_functions(self) -> Iterator[tuple[str, Function, bool]]:
        """Functions of modules and methods of their public classes, where no name begins with ``_``: the place, the
        function, and whether it is documented. A method is also documented where it carries out a documented one, of a
        base class or of a protocol of which its class has every method."""
        for name, tree in self.parsed.items():
            for node in tree.body:
                if isinstance(node, Function) and _is_public(node):
                    yield f"{name}:{node.name}", node, ast.get_docstring(node) is not None
                if isinstance(node, ast.ClassDef) and _is_public(node):
                    known = self._documented_names(node)
                    for method in filter(_is_public, _methods(node)):
                        yield f"{name}:{node.name}.{method.name}", method, method.name in known

    @cached_property
    def _classes(self) -> dict[str, list[ast.ClassDef]]:
        """By name; classes of different modules may share one."""
        classes: dict[str, list[ast.ClassDef]] = defaultdict(list)
        for tree in self.parsed.values():
            for node in tree.body:
                if isinstance(node, ast.ClassDef):
                    classes[node.name].append(node)
        return classes

    def _family(self, node: ast.ClassDef) -> list[ast.ClassDef]:
        """The class and its base classes in the package."""
        above = [other for base in _bases(node) for other in self._classes.get(base, []) if other is not node]
        return [node, *(each for other in above for each in self._family(other))]

    def _documented_names(self, node: ast.ClassDef) -> set[str]:
        """The methods with a docstring, of the class, its base classes and the protocols that it carries out."""
        family = self._family(node)
        names = {name for each in family for name, documented in _members(each).items() if documented}
        own = {name for each in family for name in _members(each)}
        for protocol in (each for group in self._classes.values() for each in group if "Protocol" in _bases(each)):
            members = _members(protocol)
            if members and members.keys() <= own:
                names |= {name for name, documented in members.items() if documented}
        return names


def _has_role(name: str) -> bool:
    return name.rpartition(".")[2] in (ROLES | TASK_ROLES if f".{PACKAGE}.tasks." in f".{name}" else ROLES)


def _methods(node: ast.ClassDef) -> list[Function]:
    return [each for each in node.body if isinstance(each, Function)]


def _members(node: ast.ClassDef) -> dict[str, bool]:
    """Methods and attributes of a class by name, and whether each is a method with a docstring."""
    fields = {
        each.target.id: False
        for each in node.body
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
    }
    return fields | {method.name: ast.get_docstring(method) is not None for method in _methods(node)}


def _bases(node: ast.ClassDef) -> set[str]:
    """Names of the base classes, without modules and type arguments."""
    return {ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in node.bases}


def _is_public(node: Function | ast.ClassDef) -> bool:
    return not node.name.startswith("_")


def cycles(graph: Graph) -> list[set[str]]:
    """Groups of entries that import each other, directly or through others."""
    reached = {entry: _reachable(graph, entry) for entry in graph}
    groups = {frozenset({entry} | {other for other in reached[entry] if entry in reached[other]}) for entry in graph}
    return sorted((set(group) for group in groups if len(group) > 1), key=sorted)


def _reachable(graph: Graph, start: str) -> set[str]:
    seen: set[str] = set()
    waiting = list(graph[start])
    while waiting:
        entry = waiting.pop()
        if entry not in seen:
            seen.add(entry)
            waiting += graph.get(entry, ())
    return seen


def levels(graph: Graph) -> int:
    """Entries on the longest chain of imports; those of a cycle count as one."""
    group = {entry: entry for entry in graph} | {entry: min(each) for each in cycles(graph) for entry in each}
    merged: dict[str, set[str]] = defaultdict(set)
    for entry, others in graph.items():
        merged[group[entry]] |= {group[other] for other in others if other in group} - {group[entry]}
    height: dict[str, int] = {}

    def climb(entry: str) -> int:
        if entry not in height:
            height[entry] = 1 + max(map(climb, merged[entry]), default=0)
        return height[entry]

    return max((climb(entry) for entry in list(merged)), default=0)


def repeated(names: Iterable[str]) -> int:
    """Names that occur twice or more."""
    return sum(count > 1 for count in Counter(names).values())


def num_lines(source: str) -> int:
    return sum(bool(line.strip()) for line in source.splitlines())


def length(node: Function) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def num_arguments(node: Function) -> int:
    names = [each.arg for each in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
    return len([name for name in names if name not in ("self", "cls")])


def figures(tree: Tree) -> dict[str, str]:
    """What is measured, in the order of the table."""
    folder, most = tree.modules_per_folder.most_common(1)[0]
    graphs = {name: tree.entries(name) for name in tree.packages}
    highest = max(graphs, key=lambda name: levels(graphs[name]))
    longest = max(tree.sources, key=lambda name: tree.sources[name].count("\n"))
    where, function = max(tree.functions(), key=lambda named: length(named[1]))
    caller, widest = max(tree.functions(), key=lambda named: num_arguments(named[1]))
    documented = [is_documented for _, _, is_documented in tree.public_functions()]
    classes = [node.name for each in tree.parsed.values() for node in each.body if isinstance(node, ast.ClassDef)]
    chains = [levels(graphs[f"{PACKAGE}.{name}"]) for name in ("evaluation", "serving")]
    return {
        "modules, and their lines": f"{len(tree.modules)}, {sum(map(num_lines, tree.sources.values())):,}",
        "most modules in a folder": f"{most} ({folder})",
        "folders of more than 15 modules": str(sum(count > 15 for count in tree.modules_per_folder.values())),
        "most import levels in a folder": f"{levels(graphs[highest])} ({highest})",
        "import levels of evaluation, serving": ", ".join(map(str, chains)),
        "folders with import cycles": str(sum(bool(cycles(graph)) for graph in graphs.values())),
        "module names that occur twice, but for layers and roles": str(len(tree.confusing_modules())),
        "class names that occur twice": str(repeated(classes)),
        "longest file, lines": f"{tree.sources[longest].count(chr(10))} ({longest})",
        "longest function, lines": f"{length(function)} ({where}:{function.name})",
        "most arguments": f"{num_arguments(widest)} ({caller}:{widest.name})",
        "lines of a task (gsm8k)": str(num_lines(tree.sources[f"{PACKAGE}.tasks.gsm8k"])),
        "public functions and methods with a docstring": f"{100 * sum(documented) / len(documented):.0f} %",
    }


def lines_by_package(tree: Tree) -> Counter[str]:
    """Lines of each entry of the package."""
    counts: Counter[str] = Counter()
    for name, source in tree.sources.items():
        counts[name.split(".")[1] if "." in name else "__init__"] += num_lines(source)
    return counts


def tree_at(commit: str) -> Tree:
    archive = subprocess.run(
        ["git", "archive", commit, PACKAGE], check=True, capture_output=True, cwd=REPOSITORY
    ).stdout  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=BytesIO(archive)) as files:
            files.extractall(folder, filter="data")
        return Tree.read(Path(folder))


def table(headers: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    headers = list(headers)
    ruler = ["---", *("---:" for _ in headers[1:])]
    return "\n".join(f"| {' | '.join(row)} |" for row in (headers, ruler, *map(list, rows)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", default="b738c25", help="the commit to compare with")
    before, after = tree_at(parser.parse_args().before), Tree.read(REPOSITORY)
    then, now = figures(before), figures(after)
    print(table(("", "before", "now"), ((name, then[name], now[name]) for name in now)))
    print()
    then_lines, now_lines = lines_by_package(before), lines_by_package(after)
    names = sorted(then_lines | now_lines, key=lambda name: -max(then_lines[name], now_lines[name]))
    shown = ((name, f"{then_lines[name]:,}", f"{now_lines[name]:,}") for name in names if name != "__init__")
    print(table(("package", "lines before", "now"), shown))
    print()
    for group in (group for name in sorted(after.packages) for group in cycles(after.entries(name))):
        print("cycle:", ", ".join(sorted(group)))


if __name__ == "__main__":
    main()
