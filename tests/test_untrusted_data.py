"""Reading data runs no code: nothing of ours unpickles, evaluates, or lets a model repository bring its own code."""

import ast
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
FILES = sorted(
    file
    for folder in ("raydebm", "client/raydebm_client", "jobs", "benchmarks")
    for file in (REPOSITORY / folder).rglob("*.py")
)
UNPICKLERS = {"cloudpickle", "dill", "jsonpickle", "joblib", "marshal", "pickle", "shelve"}
INSIDE_THE_SANDBOX = "raydebm/tasks/sandbox/inside/"
"""The one place that runs programs as they are, in a process without rights."""
BUILT_IN_CALLS = {"eval", "exec", "compile", "__import__"}


def faults_of(source, path="module.py"):
    """Line and fault of each place that could run code which data brought along."""
    faults = []
    for node in ast.walk(ast.parse(source)):
        fault = _fault_of_import(node) or _fault_of_call(node, path)
        if fault is not None:
            faults.append(f"{path}:{node.lineno}: {fault}")
    return faults


def _fault_of_import(node):
    names = []
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
        names = [node.module or ""]
    bad = {name.partition(".")[0] for name in names} & UNPICKLERS
    return f"imports {min(bad)}" if bad else None


def _fault_of_call(node, path):
    if not isinstance(node, ast.Call):
        return None
    called = ast.unparse(node.func)
    options = {option.arg: ast.unparse(option.value) for option in node.keywords}
    if options.get("trust_remote_code", "False") != "False" or "trust_remote_code" in _keys(node):
        return "trusts remote code"
    if options.get("allow_pickle", "False") != "False":
        return "allows pickle"
    if called == "torch.load" and options.get("weights_only") != "True":
        return "torch.load without weights_only=True"
    if called in ("yaml.load", "yaml.unsafe_load", "yaml.full_load"):
        return f"{called} in place of yaml.safe_load"
    if called in BUILT_IN_CALLS and not path.startswith(INSIDE_THE_SANDBOX):
        return f"calls {called}"
    return None


def _keys(call):
    """Of a dictionary that is unpacked: ``f(**{"trust_remote_code": True})``."""
    unpacked = [option.value for option in call.keywords if option.arg is None and isinstance(option.value, ast.Dict)]
    return {key.value for node in unpacked for key in node.keys if isinstance(key, ast.Constant)}


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        ("import pickle", "imports pickle"),
        ("from joblib import load", "imports joblib"),
        ("AutoModel.from_pretrained(name, trust_remote_code=True)", "trusts remote code"),
        ("AutoModel.from_pretrained(name, trust_remote_code=wanted)", "trusts remote code"),
        ("read(name, **{'trust_remote_code': True})", "trusts remote code"),
        ("numpy.load(file, allow_pickle=True)", "allows pickle"),
        ("torch.load(file)", "torch.load without weights_only=True"),
        ("torch.load(file, weights_only=False)", "torch.load without weights_only=True"),
        ("yaml.load(text, Loader=yaml.Loader)", "yaml.load in place of yaml.safe_load"),
        ("eval(text)", "calls eval"),
        ("exec(text, {})", "calls exec"),
    ],
)
def test_the_walk_sees_what_it_is_for(source, fault):
    assert faults_of(source) == [f"module.py:1: {fault}"]


@pytest.mark.parametrize(
    "source", ["ast.literal_eval(text)", "model.eval()", "torch.load(file, weights_only=True)", "re.compile(pattern)"]
)
def test_the_walk_leaves_alone_what_runs_nothing(source):
    assert faults_of(source) == []


def test_no_module_runs_code_that_data_brought():
    assert len(FILES) > 200
    assert [
        fault for file in FILES for fault in faults_of(file.read_text("utf-8"), str(file.relative_to(REPOSITORY)))
    ] == []
