"""Train and score all folds of a recipe on a machine with a GPU that has neither the data nor Ray.

    python benchmarks/folds_on_gpu.py pack   configs/gsm8k_recorded.yaml gsm8k.pack [key=value ...]
    python benchmarks/folds_on_gpu.py train  gsm8k.pack energies/gsm8k --rates 5e-4,1e-3,2e-3
    python benchmarks/folds_on_gpu.py finish configs/gsm8k_recorded.yaml energies/gsm8k [key=value ...]

``pack`` and ``finish`` run on the machine with the data; ``train`` runs on the machine with the GPU, which needs torch,
transformers, PEFT and pydantic. ``finish`` writes the output of ``raydebm seeds --folds 5`` with these energies, but
without adapter weights: its runs can be evaluated but not served.

In each fold, the first adapter is trained with every learning rate, and the rate with the lowest validation loss is
used for all adapters; test problems are not used. ``train --without-problem`` leaves the problem out of all texts, to
measure its value. ``--backbone``, ``--max-length`` and ``--layers`` of ``train`` replace settings of the recipe;
``finish`` needs the same settings as overrides.
"""

import argparse
import gzip
import json
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from raydebm.config import Recipe
    from raydebm.evaluation.trainings import TrainingSummary
    from raydebm.pipeline.runner import Pipeline

NUM_FOLDS = 5


def pack(recipe: "Recipe", out: Path, *, num_folds: int) -> None:
    """Write texts, pairs and settings of all folds."""
    from raydebm.config.scorer import BAG_FRAC
    from raydebm.pipeline.context import TRAIN, VALIDATION
    from raydebm.pipeline.stages.energies import adapters_out_of_bag, pool_candidates
    from raydebm.pipeline.stages.pairs import candidates_as_scored
    from raydebm.scorer.pairs import bag, training_groups
    from raydebm.scorer.training.settings import TrainingSettings

    number: dict[str, int] = {}

    def text_number(text: str) -> int:
        return number.setdefault(text, len(number))

    folds = []
    for pipeline in folds_of(recipe, num_folds):
        pipeline.make("pairs")
        run, problems = pipeline.run, pipeline.problems()
        groups = {
            split: training_groups(run.stored_pairs(split), candidates_as_scored(pipeline), problems.values())
            for split in (TRAIN, VALIDATION)
        }
        prompts = {group.problem_id: group.prompt for group in groups[TRAIN]}
        members = adapters_out_of_bag(pipeline)
        reasoning = recipe.scorer.reasoning
        scored = (candidate.as_scored(reasoning) for candidate in pool_candidates(pipeline))
        folds.append(
            {
                "bags": {
                    adapter.name: bag(prompts, bag_frac=BAG_FRAC, seed=recipe.training_seed, adapter=adapter.name)
                    for adapter in recipe.scorer.adapters
                },
                **{
                    split: [
                        (one.problem_id, text_number(one.prompt), list(map(text_number, one.texts)), one.pairs)
                        for one in groups[split]
                    ]
                    for split in (TRAIN, VALIDATION)
                },
                "candidates": [
                    (
                        one.candidate_id,
                        text_number(problems[one.problem_id].prompt),
                        text_number(one.text),
                        "".join("01"[is_asked] for is_asked in members.get(one.problem_id, ())),
                    )
                    for one in scored
                    if one.text is not None
                ],
            }
        )
        task = pipeline.task
    packed = {
        "backbone": recipe.scorer.backbone,
        "adapters": [adapter.model_dump(mode="json") for adapter in recipe.scorer.adapters],
        "settings": asdict(TrainingSettings.from_recipe(recipe, task.defaults)),
        "texts": list(number),
        "folds": folds,
    }
    with gzip.open(out, "wt", compresslevel=9, encoding="utf-8") as file:
        json.dump(packed, file)


def folds_of(recipe: Any, num_folds: int, rates: Mapping[int, float] | None = None) -> Iterator[Any]:
    """Pipelines of the folds, with problems, candidates and labels of the recipe's own run, which must exist."""
    from raydebm.pipeline.runner import Pipeline, share_stages
    from raydebm.pipeline.studies.trainings import _pipeline

    for index in range(num_folds) if rates is None else rates:
        changed = recipe
        if rates is not None:
            training = recipe.training.model_copy(update={"learning_rate": rates[index]})
            changed = recipe.model_copy(update={"training": training})
        shared = Pipeline(recipe=changed)
        pipeline = _pipeline(shared, (index, num_folds), recipe.training_seed)
        share_stages(shared, pipeline)
        yield pipeline


def train(given: argparse.Namespace) -> None:
    """Train and score every fold, and write its energies and training records."""
    import torch

    from raydebm.config import AdapterConfig
    from raydebm.scorer.checkpoint import read_ensemble, write_ensemble
    from raydebm.scorer.ensemble import EnsembleScorer
    from raydebm.scorer.model.backbone import load_backbone
    from raydebm.scorer.pairs import TrainingGroup
    from raydebm.scorer.training.adapter import train_adapter
    from raydebm.scorer.training.schedule import AdapterData
    from raydebm.scorer.training.settings import TrainingSettings

    with gzip.open(given.packed, "rt", encoding="utf-8") as file:
        packed = json.load(file)
    texts: list[str] = packed["texts"]
    prompts = [""] * len(texts) if given.without_problem else texts
    backbone, tokens = given.backbone or packed["backbone"], given.micro_batch_tokens
    trained_on = load_backbone(backbone, device=given.device, dtype="float32")
    scored_by = load_backbone(backbone, device=given.device)
    changed = {} if given.layers is None else {"layers": given.layers}
    adapters = [AdapterConfig.model_validate(one | changed) for one in packed["adapters"]]
    settings = replace(TrainingSettings(**packed["settings"]), micro_batch_tokens=tokens)
    if given.max_length is not None:
        settings = replace(settings, max_length=given.max_length)
    given.out.mkdir(parents=True, exist_ok=True)
    for index in given.folds or range(len(packed["folds"])):
        fold = packed["folds"][index]
        groups = {
            split: [
                TrainingGroup(
                    problem_id=problem, prompt=prompts[prompt], texts=tuple(texts[one] for one in own),
                    pairs=tuple((chosen, rejected) for chosen, rejected in pairs),
                )
                for problem, prompt, own, pairs in fold[split]
            ]
            for split in ("train", "validation")
        }  # fmt: skip
        started = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder)

            def fit(adapter: AdapterConfig, rate: float, at: Path, groups: Any = groups, fold: Any = fold) -> Any:
                bagged = set(fold["bags"][adapter.name])
                return train_adapter(
                    adapter,
                    AdapterData(
                        train=[group for group in groups["train"] if group.problem_id in bagged],
                        validation=groups["validation"],
                        fingerprint="packed",
                    ),
                    backbone=trained_on,
                    settings=replace(settings, learning_rate=rate),
                    out_dir=at,
                    report=lambda epoch: None,
                ).record

            first = {rate: fit(adapters[0], rate, place / f"{rate:g}") for rate in given.rates}
            losses = {rate: record.best.validation_loss for rate, record in first.items()}
            rate = min(losses, key=lambda one: losses[one] if losses[one] is not None else 0.0)
            records = {adapters[0].name: first[rate]}
            records |= {adapter.name: fit(adapter, rate, place / adapter.name) for adapter in adapters[1:]}
            seconds = time.perf_counter() - started
            folders = {adapter.name: place / adapter.name for adapter in adapters}
            folders[adapters[0].name] = place / f"{rate:g}"
            write_ensemble(place / "ensemble", folders, {})
            record, stored = read_ensemble(place / "ensemble")
            scorer = EnsembleScorer.of_parts(record, stored, backbone=scored_by, micro_batch_tokens=tokens)
            rows = dict(_scored(scorer, prompts, texts, fold["candidates"]))
            made = {
                "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU",
                "torch": torch.__version__,
                "rate": rate,
                "losses": {f"{one:g}": loss for one, loss in losses.items()},
                "ensemble": json.loads((place / "ensemble" / "ensemble.json").read_text(encoding="utf-8")),
                "records": {one: json.loads(record.model_dump_json()) for one, record in records.items()},
                "training_seconds": seconds,
                "seconds": time.perf_counter() - started,
                "dtype": scored_by.dtype,
                "energies": rows,
            }
        with gzip.open(given.out / f"fold-{index}.json.gz", "wt", encoding="utf-8") as file:
            json.dump(made, file)
        print(f"{given.out.name} fold {index}: {losses}, {seconds:.0f} of {made['seconds']:.0f} s", flush=True)


def _scored(
    scorer: Any, prompts: Sequence[str], texts: Sequence[str], candidates: Sequence[Any]
) -> Iterator[tuple[str, Any]]:
    """Rows of energies by candidate id. Equal texts are scored once for the same adapters."""
    named: dict[str, dict[tuple[str, str], list[str]]] = {}
    for candidate_id, prompt, text, asked in candidates:
        named.setdefault(asked, {}).setdefault((prompts[prompt], texts[text]), []).append(candidate_id)
    for asked, pairs in named.items():
        members = [one == "1" for one in asked]
        of_these = scorer.with_adapters(members) if asked else scorer
        ordered = sorted(pairs, key=lambda pair: -len(pair[0] + pair[1]))
        for start in range(0, len(ordered), 4096):
            part = ordered[start : start + 4096]
            for pair, made in zip(part, of_these.score(part), strict=True):
                energies = iter(round(energy, 5) for energy in made.members)
                spread = [next(energies) if is_asked else None for is_asked in members] if asked else list(energies)
                read = [round(share, 4) for share in (made.problem_read, made.answer_read)]
                row = (spread, made.num_tokens, made.num_truncated, *read)
                yield from ((candidate_id, row) for candidate_id in pairs[pair])


def finish(shared: "Pipeline", made: Path, *, num_folds: int) -> tuple["TrainingSummary", str]:
    """Write the runs of the folds from their energies, evaluate them, and return a summary and its address."""
    from raydebm.evaluation.stats.json_results import command_line
    from raydebm.evaluation.trainings import summarise, write_summary
    from raydebm.pipeline.ray.score import ScoringInput, score
    from raydebm.pipeline.stages.energies import adapters_out_of_bag, pool_candidates
    from raydebm.pipeline.studies.trainings import _trained
    from raydebm.run.ensemble_file import ENSEMBLE_FILE
    from raydebm.run.fingerprints import new_manifest
    from raydebm.run.tables import EnergyRow, KnownEnergies

    folds = {
        int(path.name.removeprefix("fold-").removesuffix(".json.gz")): json.loads(gzip.decompress(path.read_bytes()))
        for path in sorted(made.glob("fold-*.json.gz"))
    }
    recipe = shared.recipe
    rates = {index: fold["rate"] for index, fold in folds.items()}
    trainings = []
    for fold, pipeline in zip(folds.values(), folds_of(recipe, num_folds, rates), strict=True):
        pipeline.make("pairs")
        run = pipeline.run
        run.write_json(fold["ensemble"], "scorer", ENSEMBLE_FILE)
        for name, record in fold["records"].items():
            run.write_json(record, "scorer", name, "training.json")
        adapters = {
            name: {"name": name, "num_epochs": len(record["epochs"]), "best_epoch": record["best_epoch"],
                   "seconds": sum(epoch["seconds"] for epoch in record["epochs"])}
            for name, record in fold["records"].items()
        }  # fmt: skip
        facts = {"adapters": adapters, "device": fold["device"], "seconds": fold["training_seconds"]}
        run.finish("scorer", new_manifest("scorer", pipeline.recipe, run, facts=facts))
        known = KnownEnergies(
            rows={
                name: EnergyRow(candidate_id=name, members=tuple(row[0]), num_tokens=row[1], num_truncated=row[2],
                                problem_read=row[3], answer_read=row[4])
                for name, row in fold["energies"].items()
            },
            dtype=fold["dtype"],
        )  # fmt: skip
        inputs = ScoringInput(
            problems=pipeline.problems(), candidates=pool_candidates(pipeline),
            members=adapters_out_of_bag(pipeline), known=known,
        )  # fmt: skip
        scored = score(inputs, checkpoint="", recipe=pipeline.recipe, run=run, stage="energies")
        run.finish("energies", new_manifest("energies", pipeline.recipe, run, facts=scored))
        trainings.append(_trained(pipeline))
    summary = summarise(trainings, title=recipe.name, task=recipe.task.name, seed=recipe.seed)
    return summary, write_summary(summary, shared.run, command=command_line())


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the arguments of the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    packing, training, finishing = (verbs.add_parser(verb) for verb in ("pack", "train", "finish"))
    for verb in (packing, finishing):
        verb.add_argument("config", type=Path)
        verb.add_argument("file", type=Path)
        verb.add_argument("overrides", nargs="*")
        verb.add_argument("--folds", type=int, default=NUM_FOLDS)
    training.add_argument("packed", type=Path)
    training.add_argument("out", type=Path)
    training.add_argument("--rates", default="1e-3", type=lambda text: [float(rate) for rate in text.split(",")])
    training.add_argument("--folds", type=int, nargs="+", help="numbers of the folds, from 0; default: all")
    training.add_argument("--without-problem", action="store_true")
    training.add_argument("--max-length", type=int)
    training.add_argument("--layers", help="such as 'upper quarter'")
    training.add_argument("--backbone", help="backbone to train; default: the recipe's")
    training.add_argument("--micro-batch-tokens", type=int, default=32768)
    training.add_argument("--device", default="auto")
    return parser.parse_args(given)


def main() -> None:
    given = arguments()
    if given.verb == "train":
        train(given)
        return
    from raydebm.config import load_recipe

    recipe = load_recipe(given.config, overrides=given.overrides)
    if given.verb == "pack":
        pack(recipe, given.file, num_folds=given.folds)
        return
    from raydebm.cli.pipeline import pipeline_for
    from raydebm.evaluation.trainings import in_words

    with pipeline_for(recipe, own_candidates=False) as shared:
        summary, address = finish(shared, given.file, num_folds=given.folds)
    print(in_words(summary), address, sep="\n")


if __name__ == "__main__":
    main()
