"""The paper's tables and figures over several runs, with variants, repairs and transfer between them.

In:   pipelines of runs; missing stages are made first.
Out:  one report, as JSON, Markdown and HTML, and the energies by other runs' adapters.
"""

import json
import math
from collections import Counter
from collections.abc import Sequence

import numpy as np

from raydebm.config import EormBaseline, JudgeBaseline
from raydebm.decision.table import PoolTable
from raydebm.evaluation.confounding.report import ConfoundingReport, generator_table, spread_table
from raydebm.evaluation.paper.reproduction import Reproduction, reproduction, write_reproduction
from raydebm.evaluation.report.document import Chapter
from raydebm.evaluation.results.evaluation import Evaluation
from raydebm.evaluation.selectors import PAPER_RULE
from raydebm.evaluation.stats.intervals import Bootstrap, Estimate
from raydebm.evaluation.stats.json_results import command_line
from raydebm.evaluation.studies.scorers import ScoredVariant, variant_study
from raydebm.evaluation.studies.study import Fit, StudyResults, Subject, study
from raydebm.pipeline.context import TEST, TRAIN, VALIDATION
from raydebm.pipeline.pools import calibrated_policy, evaluated_pools
from raydebm.pipeline.runner import Pipeline
from raydebm.pipeline.stages.energies import training_curves
from raydebm.pipeline.studies.confounding import confounding, screen_of
from raydebm.pipeline.studies.repair import repair_of
from raydebm.pipeline.studies.transfer import cross_pool, data_of, transfer_between
from raydebm.pipeline.studies.variants import make_variants
from raydebm.records import Verdict
from raydebm.run.directory import RunDir


def reproduce(
    pipelines: Sequence[Pipeline],
    *,
    run: RunDir,
    with_transfer: bool = False,
    transfer_problems: int | None = None,
    with_confounding: bool = False,
) -> tuple[Reproduction, str]:
    """Bring every run to its evaluation, study its pools, and write one report; returns it and its address.

    Each run is followed by its variants, which share its candidates and labels. A run with a repair (``raydebm
    confounding --repair``, or a variant with ``repair: true``) occurs twice: original and repaired.

    Args:
        run: destination of the report.
        with_transfer: also score the test candidates of the runs on all generators with each other's adapters. Always
            done between a run and its variants on fewer generators.
        transfer_problems: number of test problems per run for ``with_transfer``. Default: all.
        with_confounding: make the full confounding report of every scorer (``raydebm confounding``), with style
            ablation and style swap, which score texts again. Default: screen and case studies only, without scoring.

    Raises:
        MissingKeyError: the key of the endpoint that rewrites answers for the style swap is not in the environment.
    """
    families = [make_variants(pipeline) for pipeline in pipelines]
    members = [with_repairs([family.run, *(child for _, child in family.variants)]) for family in families]
    all_pipelines = [pipeline for family in members for pipeline in family]
    studies, screens = [], dict[str, ConfoundingReport]()
    for pipeline in all_pipelines:
        evaluation = pipeline.evaluate()
        pools, validation = (evaluated_pools(pipeline, split) for split in (TEST, VALIDATION))
        if len(pools.authors) > 1:  # with a single generator, nothing can be confounded
            whole = confounding(pipeline)[0] if with_confounding else None
            screens[pipeline.run.root] = whole or screen_of(pipeline, pools, validation)
        studies.append(_study_of(pipeline, evaluation, pools, screens.get(pipeline.run.root)))
    sections = [
        Chapter(title=f"Confounding: {one.scorer}", paragraphs=(one.summary(),), tables=tuple(one.tables()))
        for one in screens.values()
    ]
    sections += [
        _repair_section(screen, screens[repaired])
        for root, screen in screens.items()
        if (repaired := RunDir(root).uri("repair")) in screens
    ]
    fewer = {pipeline.run.root for family in families for pipeline in family.on_fewer_generators}
    whole_pools = [pipeline for pipeline in all_pipelines if pipeline.run.root not in fewer]
    transfers = []
    if with_transfer and len(whole_pools) > 1:
        transfers = [transfer_between(whole_pools, run=run, num_problems=transfer_problems)]
    transfers += [
        cross_pool([family.run, *family.on_fewer_generators], run=run)
        for family in families
        if family.on_fewer_generators
    ]
    variants = [
        variant_study(
            [scored_variant(pipeline) for pipeline in group],
            title=f"Variants of {family.run.name}",
            seed=family.run.recipe.seed,
        )
        for family, group in zip(families, members, strict=True)
        if len(group) > 1
    ]
    report = reproduction(studies, transfers=transfers, variants=variants, sections=sections, command=command_line())
    return report, write_reproduction(report, run)


def scored_variant(pipeline: Pipeline) -> ScoredVariant:
    """A run's test pools and scorer size, for comparison with others."""
    scorer = pipeline.recipe.scorer
    num_adapters, num_parameters = trained_weights(pipeline.run, [adapter.name for adapter in scorer.adapters])
    return ScoredVariant(
        name=pipeline.name,
        pools=evaluated_pools(pipeline, TEST),
        lambda_=calibrated_policy(pipeline).lambda_,
        backbone=scorer.backbone,
        num_adapters=num_adapters,
        num_parameters=num_parameters,
    )


def trained_weights(run: RunDir, members: Sequence[str]) -> tuple[int, int]:
    """(number of distinct adapters, number of trained parameters) of a scorer; adapters with equal files count once."""
    files = ("adapter_model.safetensors", "head.safetensors")
    adapters, heads = ({run.read_bytes("scorer", name, file) for name in members} for file in files)
    return len(adapters), sum(math.prod(shape) for part in (*adapters, *heads) for shape in _shapes(part))


def _shapes(content: bytes) -> list[list[int]]:
    """The shapes of a safetensors file's tensors, from its header (length in eight bytes, then JSON)."""
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    return [entry["shape"] for name, entry in header.items() if name != "__metadata__"]


def with_repairs(pipelines: Sequence[Pipeline]) -> list[Pipeline]:
    """Insert each run's repair after it, if there is one and it is not among the given runs."""
    given = {pipeline.run.root for pipeline in pipelines}
    runs = []
    for pipeline in pipelines:
        runs.append(pipeline)
        repaired = None if pipeline.run.uri("repair") in given else repair_of(pipeline)
        if repaired is not None:
            runs.append(repaired)
    return runs


def _study_of(
    pipeline: Pipeline,
    evaluation: Evaluation,
    pools: PoolTable,
    report: ConfoundingReport | None,
) -> StudyResults:
    """Study one run's evaluated pools."""
    recipe = pipeline.recipe
    subject = Subject(
        name=pipeline.name,
        backbone=recipe.scorer.backbone,
        num_train=len(pipeline.splits()[TRAIN]),
        repaired=pipeline.is_repaired,
        data=data_of(recipe),
        models=_models(pipeline),
        fit=_fit(pipeline),
        findings=({} if report is None else findings_of(report)) | _share_of_wrong_answers(pipeline),
    )
    return study(
        evaluation,
        pools,
        subject=subject,
        train=evaluated_pools(pipeline, TRAIN, VALIDATION),
    )


def _models(pipeline: Pipeline) -> dict[str, str]:
    """Model and version of each generator, and a description of each baseline."""
    recipe = pipeline.recipe
    models = {generator.name: generator.model for generator in recipe.generators}
    for baseline in recipe.baselines:
        if isinstance(baseline, EormBaseline):
            file = RunDir(pipeline.run.baseline_uri(baseline.name))
            if file.exists("eorm.json"):
                millions = file.needed_object("eorm.json")["num_parameters"] / 1e6
                models[baseline.name] = f"EORM of {millions:.3g}M parameters, trained on this pool"
        elif isinstance(baseline, JudgeBaseline):
            models[baseline.name] = f"{baseline.name}, {baseline.generator.model}"
        else:
            models[baseline.name] = f"{baseline.name}, {getattr(baseline, 'model', baseline.kind)}"
    return models


def _fit(pipeline: Pipeline) -> Fit | None:
    facts = pipeline.run.facts("pairs")
    if not {TRAIN, VALIDATION} <= facts.keys():
        return None
    epochs = [record["epochs"] for record in training_curves(pipeline).values()]
    losses = [[epoch["validation_loss"] for epoch in each if epoch["validation_loss"] is not None] for each in epochs]
    return Fit(
        num_usable=facts[TRAIN]["problems"] + facts[VALIDATION]["problems"],
        num_pairs=facts[TRAIN]["pairs"] + facts[VALIDATION]["pairs"],
        losses=tuple(min(each) for each in losses if each),
        num_epochs=tuple(len(each) for each in epochs),
    )


def findings_of(report: ConfoundingReport) -> dict[str, Estimate]:
    """The paper's figures on a scorer's confounding, by their names in ``published.yaml``."""
    found = {"gap within a generator": report.screen.gap_within}
    ablation = {row.name: row.screen for row in report.ablation}
    without_style = next((screen for name, screen in reversed(ablation.items()) if "+" in name), None)
    if without_style is not None:
        found["gap between generators, without style"] = without_style.spread_range
        found["gap within a generator, without style"] = without_style.gap_within
    if "code only" in ablation:
        found["gap between generators, code only"] = ablation["code only"].spread_range
    if "explanation only" in ablation:
        found["pass@1, explanation only"] = ablation["explanation only"].accuracy[PAPER_RULE]
    for row in (row for swap in report.swaps for row in swap.rows):
        style = next((name for name in ("LLaMA", "GPT-OSS", "Qwen") if name.lower() in row.style.lower()), None)
        if not row.is_control and (style or row.style.startswith("(")):
            found[f"change of mu in {f'the style of {style}' if style else 'another style'}"] = row.change
    picked: Counter[str] = Counter()
    for count in report.cases.counts:
        picked[count.generator] += count.num_picked
    if picked:
        [(favourite, _)] = picked.most_common(1)
        others = [count for count in report.cases.counts if count.generator != favourite]
        found["selections of other generators on EASY problems"] = _count_of(
            sum(count.num_picked for count in others if count.difficulty == "EASY"),
            sum(count.num_picked for count in others),
        )
        found["wrong selections of the favourite with a right alternative"] = _count_of(
            sum(count.num_avoidable for count in report.cases.counts if count.generator == favourite),
            picked.total(),
        )
    return found


def _count_of(count: int, total: int) -> Estimate:
    return Estimate(value=float(count), low=None, high=None, n=total)


def _share_of_wrong_answers(pipeline: Pipeline) -> dict[str, Estimate]:
    """Share of incorrect programs that run but print a wrong answer, on training and validation problems.

    Empty for tasks whose labels do not have this reason.
    """
    problems = {*pipeline.splits()[TRAIN], *pipeline.splits()[VALIDATION]}
    wrong, incorrect = Counter[str](), Counter[str]()
    for label in pipeline.run.labels():
        if label.problem_id in problems and label.verdict is Verdict.INCORRECT:
            incorrect[label.problem_id] += 1
            wrong[label.problem_id] += label.reason.startswith("wrong_answer")
    if not wrong.total():
        return {}
    bootstrap = Bootstrap.of(len(incorrect), seed=0)
    numbers = [np.array([counts[name] for name in incorrect], dtype=np.float64) for counts in (wrong, incorrect)]
    return {"wrong answers among incorrect programs": bootstrap.ratio(*numbers)}


def _repair_section(before: ConfoundingReport, after: ConfoundingReport) -> Chapter:
    """Screens and picks of a scorer before and after its repair."""
    screens = {"before": before.screen, "after": after.screen}
    warnings = f"Warnings of the screen: {len(before.screen.warnings())} before, {len(after.screen.warnings())} after."
    return Chapter(
        title=f"Before and after the repair: {before.scorer}",
        paragraphs=(warnings,),
        tables=(
            spread_table(screens),
            *(generator_table(screen, title=f"Generators {when} the repair") for when, screen in screens.items()),
        ),
    )
