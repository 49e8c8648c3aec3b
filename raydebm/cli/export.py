"""`raydebm export`: the scorer of a run, or its pairs, as a folder for the Hugging Face hub."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from raydebm.cli.console import console
from raydebm.cli.parameters import options_from
from raydebm.errors import ConfigError

if TYPE_CHECKING:
    from raydebm.export.model_card import Listing


def listing_of(
    title: Annotated[str | None, typer.Option(help="Heading of the card; default: the run's name.")] = None,
    license: Annotated[str | None, typer.Option(help="The hub's name of your licence, such as apache-2.0.")] = None,
    dataset: Annotated[
        list[str] | None, typer.Option(help="The hub's name of the data that the problems came from; repeatable.")
    ] = None,
    base_model: Annotated[
        str | None, typer.Option(help="The backbone's name on the hub, where the run used a local folder.")
    ] = None,
) -> "Listing":
    """What the options say of the export that the run does not know."""
    from raydebm.export.model_card import Listing

    return Listing(title=title, license=license, datasets=tuple(dataset or ()), base_model=base_model)


@options_from(listing_of, "listing")
def export(
    out: Annotated[Path, typer.Option("--out", help="Folder to write; must not exist or be empty.")],
    run_dir: Annotated[str, typer.Option("--run-dir", help="A finished run: a folder or a URL.")] = "runs/demo",
    pairs: Annotated[
        bool, typer.Option("--pairs", help="The pairs as preference data for other trainers, instead of the scorer.")
    ] = False,
    repaired: Annotated[bool, typer.Option("--repaired", help="The scorer that `raydebm repair` made.")] = False,
    push_to_hub: Annotated[
        str | None, typer.Option("--push-to-hub", metavar="USER/NAME", help="Upload it; needs HF_TOKEN.")
    ] = None,
    private: Annotated[bool, typer.Option("--private", help="Make the repository private.")] = False,
    *,
    listing: "Listing",
) -> None:
    """Write a scorer or its pairs for the Hugging Face hub.

    The scorer comes with its model card, the pairs with a data card.
    """
    from raydebm.export.finished_run import FinishedRun
    from raydebm.export.hub import check_can_push, push

    if pairs and (repaired or listing.base_model or listing.datasets):
        raise ConfigError("--repaired, --base-model and --dataset describe a scorer; leave them or --pairs out")
    if private and push_to_hub is None:
        raise ConfigError("--private is about a repository of the hub; give --push-to-hub with it")
    finished = FinishedRun.read(run_dir)
    if push_to_hub is not None:
        check_can_push(push_to_hub)
    if pairs:
        from raydebm.export.pairs_folder import export_pairs

        written = export_pairs(finished, out, title=listing.title, license=listing.license)
        counts = ", ".join(f"{count} {split}" for split, count in written.num_pairs.items())
        console.print(f"pairs ({counts}) written to {out}", soft_wrap=True)
    else:
        from raydebm.export.scorer_folder import export_scorer

        stage = "repair/scorer" if repaired else "scorer"
        scorer = export_scorer(finished, out, listing, repository=push_to_hub, stage=stage)
        console.print(f"scorer ({', '.join(scorer.adapters)}) written to {out}", soft_wrap=True)
        for line in scorer.left_out:
            console.print(f"- left out: {line}", soft_wrap=True)
    if push_to_hub is not None:
        address = push(out, push_to_hub, kind="dataset" if pairs else "model", private=private)
        console.print(f"pushed to {address}", soft_wrap=True)
