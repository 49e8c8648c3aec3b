"""`raydebm replay`: decisions about stored requests under another policy, budget or ensemble."""

import json
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from pydantic import ValidationError
from rich.table import Table

from raydebm.cli.console import console, say
from raydebm.cli.parameters import decision_filter, options_from
from raydebm.config import CostsConfig
from raydebm.errors import ConfigError, PoolError, UnknownNameError
from raydebm.user_files import read_json_lines, writing

if TYPE_CHECKING:
    from raydebm.records import Verdict
    from raydebm.service.store.reader import DecisionReader, Filter
    from raydebm.service.store.stored_replay import Changes, Replayed, ReplayTally


def stored_changes(
    settings: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[KEY=VALUE]...",
            help="Settings to change, such as lambda=2, costs.wrong=3, or budget=8 for at most 8 candidates.",
        ),
    ] = None,
    policy: Annotated[Path | None, typer.Option(help="Policy file that replaces the recorded policies.")] = None,
) -> "Changes":
    """Changed settings of a command line. Raises ConfigError for a wrong one or a policy file that cannot be read."""
    from raydebm.config import apply_overrides
    from raydebm.decision.policy_file import policy_in
    from raydebm.service.store.stored_replay import Changes

    tree = apply_overrides({}, settings or ())
    costs = tree.pop("costs", None)
    try:
        prices = None if costs is None else CostsConfig.model_validate(costs)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        raise ConfigError(f"{'.'.join(map(str, ('costs', *fault['loc'])))}: {fault['msg']}") from error
    replacement = None if policy is None else policy_in(str(policy), remedy="give a file, or leave --policy out")
    return Changes(policy=replacement, values=tree, costs=prices)


@options_from(stored_changes, "changes")
@options_from(decision_filter, "where")
def replay(
    records: Annotated[str, typer.Argument(help="Folder of stored decisions, such as runs/demo/records; or a URL.")],
    changes: "Changes",
    where: "Filter",
    checkpoint: Annotated[
        str | None, typer.Option(help="Score all candidates again with the ensemble in this folder.")
    ] = None,
    labels: Annotated[
        Path | None,
        typer.Option(
            help="labels.parquet of a run, or JSON lines with candidate_id and verdict; default: reported outcomes."
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write every decision to this .jsonl file.")] = None,
) -> None:
    """Decide stored requests again under another policy.

    The budget and the ensemble can change too. Stored candidates are used, and no model is asked. With outcomes or
    labels, a paired test compares the recorded and the new decisions.
    """
    from raydebm.service.store.reader import DecisionReader
    from raydebm.service.store.stored_replay import OtherEnsemble, ReplayTally, replay_stored

    ensemble = None
    if checkpoint is not None:
        from raydebm.run.ensemble_file import read_ensemble_file, reasoning_of
        from raydebm.scorer.ensemble import EnsembleScorer

        scorer = EnsembleScorer.load(checkpoint)
        ensemble = OtherEnsemble(scorer=scorer, reasoning=reasoning_of(read_ensemble_file(checkpoint)))
    reader, tally = DecisionReader(records), ReplayTally()
    verdicts = _reported_verdicts(reader, records) if labels is None else _verdicts(labels)

    def counted() -> Iterator["Replayed"]:
        for replayed in replay_stored(reader.records(where), changes, ensemble=ensemble):
            tally.add(replayed, verdicts)
            yield replayed

    if out is None:
        deque(counted(), maxlen=0)
    else:
        _write_replayed(counted(), out)
    if tally.num_decisions == 0:
        raise PoolError(f"no stored decision in {records!r} matches; check the folder and the filters")
    _show_tally(tally, changes, with_labels=bool(verdicts))


def _reported_verdicts(reader: "DecisionReader", records: str) -> dict[str, "Verdict"]:
    """Verdicts by candidate id from outcome reports: of the selected candidate, and of others where the report decides
    them, as in tasks with one right answer."""
    from raydebm.records import Verdict
    from raydebm.run.directory import RunDir
    from raydebm.service.feedback import labelled_decisions
    from raydebm.service.store.reader import Filter
    from raydebm.tasks import get_task, task_of

    run = RunDir(records.rstrip("/").rpartition("/")[0] or ".")
    recipe = run.recipe() if run.exists("recipe.json") else None
    kinds = {True: Verdict.CORRECT, False: Verdict.INCORRECT}
    reports = list(reader.outcomes.reports())
    verdicts = {report.selected: kinds[report.correct] for report in reports if report.selected is not None}
    for name in {report.task for report in reports}:
        try:
            task = get_task(name) if recipe is None else task_of(recipe.task, name)
        except UnknownNameError:  # a recipe's own task, and the recipe is not next to the records
            continue
        for decision in labelled_decisions(reader, {name: task}.__getitem__, where=Filter(task=name)):
            verdicts |= {candidate_id: label.verdict for candidate_id, label in decision.labels.items()}
    return verdicts


def _verdicts(path: Path) -> dict[str, "Verdict"]:
    from raydebm.records import Verdict
    from raydebm.run.folder import Folder
    from raydebm.run.tables import LABELS

    if path.suffix == ".parquet":
        return {label.candidate_id: label.verdict for label in Folder(str(path.parent)).read_records(LABELS, path.name)}
    rows = [row for _, row in read_json_lines(str(path))]
    try:
        return {str(row["candidate_id"]): Verdict(row["verdict"]) for row in rows}
    except (KeyError, ValueError) as error:
        raise PoolError(f"{path}: every line needs candidate_id and verdict (correct, incorrect, unlabeled)") from error


def _write_replayed(decisions: Iterator["Replayed"], out: Path) -> None:
    """Write one line per decision as they arrive. Raises ConfigError if the file is not .jsonl or cannot be written."""
    from raydebm.service.store.stored_replay import replayed_row

    if out.suffix != ".jsonl":
        raise ConfigError(f"--out must end in .jsonl, got {out.name!r}")
    with writing(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        with out.open("w", encoding="utf-8") as stream:
            stream.writelines(f"{json.dumps(replayed_row(each), ensure_ascii=False)}\n" for each in decisions)


def _show_tally(tally: "ReplayTally", changes: "Changes", *, with_labels: bool) -> None:
    from raydebm.records import Decision

    table = Table(title=f"{tally.num_decisions:,} stored decisions, decided again", title_justify="left")
    for column in ("recorded", "again", "decisions", "share"):
        table.add_column(column, justify="left" if column in ("recorded", "again") else "right")
    for (old, new), count in sorted(tally.moves.items(), key=lambda move: (-move[1], move[0])):
        rows = {str(new): count}
        if new is Decision.REGENERATE:
            rows = {"would sample a pass or wave that is not recorded": count}
        elif old is new is Decision.ACCEPT and tally.counts["other_answer"]:
            other = tally.counts["other_answer"]
            rows = {"accept, the same answer": count - other, "accept, another answer": other}
        for words, number in rows.items():
            table.add_row(str(old), words, f"{number:,}", f"{number / tally.num_decisions:.1%}")
    console.print(table)
    for line in _tally_lines(tally, changes, with_labels=with_labels):
        say(line)


def _tally_lines(tally: "ReplayTally", changes: "Changes", *, with_labels: bool) -> Iterator[str]:
    """Sentences about changed decisions, coverage, candidates, accuracy and guarantee."""
    total = tally.num_decisions
    unknown = f"; {tally.num_pass_missing:,} are unknown" if tally.num_pass_missing else ""
    yield f"changed: {tally.num_changed:,} of {total:,} ({tally.num_changed / total:.1%}){unknown}"
    least = tally.num_accepted(1)
    low, high = least / total, (least + tally.num_pass_missing) / total
    after = f"{low:.1%}" if low == high else f"between {low:.1%} and {high:.1%}"
    yield f"coverage (share accepted): {tally.num_accepted(0) / total:.1%} recorded, {after} replayed"
    used = (tally.counts["candidates_before"] / total, tally.counts["candidates_after"] / total)
    yield f"candidates per decision: {used[0]:.2f} recorded, {used[1]:.2f} replayed"
    if with_labels:
        before = _accuracy(tally.counts["correct_before"], tally.counts["labeled_before"])
        again = _accuracy(tally.counts["correct_after"], tally.counts["labeled_after"])
        yield f"accuracy of accepted answers: {before} recorded, {again} replayed"
        yield from _test_lines(tally)
    if guaranteed := tally.counts["guaranteed"]:
        yield f"guarantee: certified for the policy of {guaranteed:,} of {total:,} decisions"
    elif changes.policy is not None and changes.policy.guarantee is not None:
        yield "no guarantee: the changed policy was not certified"
    if inexact := tally.counts["inexact"]:
        yield f"{inexact:,} decisions use a recorded pass whose feedback is about a candidate that is not selected now"


def _test_lines(tally: "ReplayTally") -> Iterator[str]:
    """Lines of the paired test, on problems with verdicts on all answers that either policy returns."""
    from raydebm.evaluation.stats.significance import p_text
    from raydebm.service.store.stored_replay import compare_policies

    pairs = list(tally.pairs.values())
    if not pairs:
        return
    for name, test in zip(("right", "wrong"), compare_policies(pairs), strict=True):
        found = test.difference
        yield (
            f"{name} answers returned, replayed minus recorded: {found.value:+.1%} "
            f"[{found.low:+.1%}, {found.high:+.1%}] of {len(pairs):,} problems, p {p_text(test.p_holm)} (McNemar, Holm)"
        )


def _accuracy(correct: int, labeled: int) -> str:
    return f"{correct / labeled:.1%} (n={labeled:,})" if labeled else "unknown (n=0)"
