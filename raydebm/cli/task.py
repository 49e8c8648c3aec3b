"""`raydebm task new | validate | list`: write a task of your own, and check it on data and answers."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from raydebm.cli.commands import new_typer
from raydebm.cli.console import console, say
from raydebm.errors import ConfigError, RaydebmError
from raydebm.user_files import writing

if TYPE_CHECKING:
    from raydebm.config import TaskConfig
    from raydebm.records import ConstraintReport, Gold, Label, Problem
    from raydebm.tasks.base import Task

app = new_typer(help="Write and check tasks of your own.", no_args_is_help=True)

MAX_SHOWN = 20
"""Maximum number of errors, and of answers, in the output. The others are only counted."""


@app.command("list")
def list_tasks() -> None:
    """List the built-in and installed tasks. Task files are not listed: a recipe names them by path."""
    from raydebm.tasks import task_table

    for name, where in sorted(task_table().items()):
        console.print(f"{name:<20} {where}")


@app.command()
def new(
    name: Annotated[str, typer.Argument(help="Name of the task: lowercase letters, digits and _.")],
    data: Annotated[
        Path | None, typer.Option("--data", help="Your data file. Writes only a task file; its prompt has the columns.")
    ] = None,
    folder: Annotated[Path | None, typer.Option("--folder", help="Folder to write to; default: ./NAME.")] = None,
) -> None:
    """Write a small task that runs offline. Its files: task file, data, recorded answers, recipe."""
    from raydebm.cli.starter import task_file_for, task_files
    from raydebm.tasks import task_table

    if name in task_table():
        raise ConfigError(f"task {name!r} exists already (`raydebm task list`); choose another name")
    target = Path(name) if folder is None else folder
    where = target.as_posix()
    files = task_files(name, where) if data is None else {"task.yaml": task_file_for(name, where, data)}
    with writing(target, option="--folder"):
        if target.exists() and any(target.iterdir() if target.is_dir() else [target]):
            raise ConfigError(f"{str(target)!r} exists and is not empty; choose another name or --folder")
        target.mkdir(parents=True, exist_ok=True)
        for file, content in files.items():
            (target / file).write_text(content, encoding="utf-8")
            say(f"wrote {target / file}")
    if data is not None:
        say(f"change it, then check it: raydebm task validate {target}/task.yaml")
        return
    say(f"check it:   raydebm task validate {target}/task.yaml --answers {target}/answers.jsonl")
    say(f"run it:     raydebm run --config {target}/recipe.yaml")


@app.command()
def validate(
    file: Annotated[str, typer.Argument(help="A task file, or the name of an installed task.")],
    data: Annotated[
        list[Path] | None, typer.Option("--data", help="Data file; repeatable; default: the task's own.")
    ] = None,
    answers: Annotated[
        Path | None, typer.Option("--answers", help="Answers to try: JSON lines with problem_id, model, text.")
    ] = None,
    text_field: Annotated[
        str | None, typer.Option("--text-field", help="Field of --answers with the answer's text; default: text.")
    ] = None,
) -> None:
    """Check a task and its data, and the --answers if given. The exit code is 1 if there is an error."""
    from raydebm.config import TaskConfig
    from raydebm.config.task import with_definition
    from raydebm.generators.pool_files import TEXT_FIELDS
    from raydebm.tasks import find_task

    try:
        task = find_task(file)
        console.print(f"task {task.name}: {len(task.constraints)} constraint(s), max_length {task.defaults.max_length}")
        rows, faults = _read_rows(task, data or [])
        for line in _describe_rows(task, rows):
            say(line)
        if answers is not None and not rows and not faults:
            raise ConfigError(
                f"--answers needs problems, and task {task.name!r} has none; give a file of problems with --data"
            )
        if answers is not None and rows:
            config = TaskConfig.model_validate(with_definition({"task": {"name": file}})["task"])
            _show_answers(task, config, rows, answers, [text_field] if text_field else TEXT_FIELDS)
    except RaydebmError as error:
        rows, faults = [], [str(error)]
    for fault in faults[:MAX_SHOWN]:
        say(Text.assemble(("error", "bold red"), f" {fault}"))
    if len(faults) > MAX_SHOWN:
        console.print(f"and {len(faults) - MAX_SHOWN} more errors")
    if faults:
        raise typer.Exit(1)
    console.print("the task is valid", style="bold green")


def _read_rows(task: "Task", files: Sequence[Path]) -> tuple[list[tuple["Problem", "Gold"]], list[str]]:
    """Problems of the files, and the errors of invalid rows. Default: the data of a task file; none for other tasks."""
    from raydebm.tasks.declared import SPLITS, DeclaredTask
    from raydebm.tasks.sources import file_rows

    if not isinstance(task, DeclaredTask):
        return [pair for file in files for pair in task.load("train", source=str(file))], []
    named = [split for split in SPLITS if getattr(task.definition.data, split) is not None]
    paths = list(files) or [task.file_of(split, None) for split in named]
    if not paths:
        return [], [f"task {task.name!r} names no data; set data.train in the task file, or give --data"]
    rows: list[tuple[Problem, Gold]] = []
    faults: list[str] = []
    for path in paths:
        before = len(rows) + len(faults)
        try:
            for where, row in file_rows(path):
                try:
                    rows.append(task.problem_and_gold(row, where))
                except RaydebmError as error:
                    faults.append(str(error))
        except RaydebmError as error:
            faults.append(str(error))
        if len(rows) + len(faults) == before:
            faults.append(f"file {str(path)!r} has no rows")
    return rows, faults


def _describe_rows(task: "Task", rows: Sequence[tuple["Problem", "Gold"]]) -> Iterator[str]:
    """Sentences about the data, with warnings about faults to correct before a paid run."""
    from raydebm.tasks.declared import DeclaredTask

    distinct = {problem.problem_id for problem, _ in rows}
    repeated = len(rows) - len(distinct)
    yield f"{len(rows)} row(s), {len(distinct)} problem(s)" + (f", {repeated} row(s) repeated" if repeated else "")
    if not isinstance(task, DeclaredTask):
        return
    without = sum(not gold.value for _, gold in rows)
    if task.definition.labels != "constraints" and without:
        yield f"warning: {without} of {len(rows)} rows have no reference answer; their candidates stay unlabeled"
    shown = sum(task.shows_gold(problem, gold) for problem, gold in rows)
    if shown:
        yield f"warning: in {shown} of {len(rows)} rows another column in the prompt contains the reference answer"
    for rule, expression, count in task.empty_operands([problem for problem, _ in rows]):
        yield f"warning: constraint {rule!r} reads {expression}, which {count} of {len(rows)} rows do not have"


def _show_answers(
    task: "Task",
    config: "TaskConfig",
    rows: Sequence[tuple["Problem", "Gold"]],
    file: Path,
    text_fields: Sequence[str],
) -> None:
    """Print counts of all answers, and the parsed answer, penalty and label of the first ones. A child process checks
    them, each with a time limit, as in a run."""
    from raydebm.decision.reporter import DEADLINE_S
    from raydebm.generators.recorded import import_pool
    from raydebm.pipeline.checker import DeadlineChecker

    problems = {problem.problem_id: problem for problem, _ in rows}
    golds = {gold.problem_id: gold for _, gold in rows}
    checked = []
    with closing(DeadlineChecker(config, deadline_s=DEADLINE_S)) as checker:
        for candidate in import_pool(file, task=task.name, problems=problems.values(), text_fields=text_fields):
            gold = golds.get(candidate.problem_id)
            label, report = checker.check(problems[candidate.problem_id], gold, candidate)
            checked.append((candidate, report, label))
    table = Table(title_justify="left")
    for column in ("problem", "answer of", "parsed", "penalty", "label", "violations"):
        table.add_column(column, overflow="fold")
    for candidate, report, label in checked[:MAX_SHOWN]:
        name = str(problems[candidate.problem_id].data.get("source_id", candidate.problem_id))
        writer = f"{candidate.generator} #{candidate.sample_index}"
        table.add_row(name, writer, *_cells(report, label))
    console.print(table)
    verdicts = Counter(str(label.verdict) for _, _, label in checked)
    say(
        f"{len(checked)} answer(s), the first {min(MAX_SHOWN, len(checked))} of them above; "
        f"{sum(report.parsed for _, report, _ in checked)} parsed, "
        f"{sum(report.penalty == 0 for _, report, _ in checked)} break no constraint; "
        + ", ".join(f"{count} {verdict}" for verdict, count in sorted(verdicts.items()))
    )


def _cells(report: "ConstraintReport", label: "Label") -> tuple[str, str, str, str]:
    said = [f"{violation.constraint}: {violation.message}" for violation in report.violations]
    why = report.error or ("" if report.parsed else "no answer in the requested format")
    penalty = "inf" if math.isinf(report.penalty) else f"{report.penalty:.3f}"
    return (report.answer or "-")[:80], penalty, str(label.verdict), "\n".join(said) or why
