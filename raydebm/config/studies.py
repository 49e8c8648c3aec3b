"""Recipe sections ``variants`` and ``confounding``: further scorers on the candidates and labels of one run, and the
settings of the confounding report and the repair."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

from pydantic import Field, model_validator

from raydebm.config.generators import AskedGenerator, GeneratorConfig
from raydebm.config.section import FolderName, SampleCount, Section

SECTIONS = ("pairs", "scorer", "training")
"""Sections of a recipe that a variant may change: the values on which the trained scorer depends."""

Tree = dict[str, Any]
"""A recipe, or a section of one, as YAML values."""


class VariantConfig(Section):
    """A scorer that differs from the recipe's in the settings given here; `raydebm reproduce` trains and evaluates it
    on the run's own candidates and labels."""

    name: FolderName
    """Its run directory is `variant-<name>` below the recipe's, and it is called `<recipe>-<name>` in reports."""
    generators: tuple[str, ...] | None = Field(None, min_length=1)
    """Generators whose candidates it is trained on and selects from. Default: all."""
    num_samples: SampleCount | None = None
    """Use only this many samples of each generator, the first ones. Default: all."""
    repair: bool = False
    """Also refit its heads as `raydebm confounding --repair` does; the report compares before and after."""
    pairs: dict[str, Any] = {}
    """Changes of ``pairs``."""
    scorer: dict[str, Any] = {}
    """Changes of ``scorer``, such as another backbone or other adapters."""
    training: dict[str, Any] = {}
    """Changes of ``training``."""

    @model_validator(mode="after")
    def _repairable(self) -> "VariantConfig":
        if self.repair and self.generators is not None and len(self.generators) < 2:
            raise ValueError(
                f"variant {self.name!r}: repair balances generators, and this variant has {self.generators[0]!r} "
                "alone; leave out repair, or name two generators or more"
            )
        return self

    @property
    def is_recipes_own(self) -> bool:
        """Whether its scorer is the recipe's own, so that only the repair remains to be done."""
        return (
            self.generators is None and self.num_samples is None and not any(getattr(self, name) for name in SECTIONS)
        )

    def applied_to(self, recipe: Tree) -> Tree:
        """The recipe of this variant, as a tree of YAML values.

        Args:
            recipe: the whole recipe, as ``Recipe.model_dump(mode="json", by_alias=True)`` gives it.

        Raises:
            ValueError: a generator is not in the recipe.
        """
        tree = {**deepcopy(recipe), "name": f"{recipe['name']}-{self.name}", "variants": []}
        for name in SECTIONS:
            tree[name] = merged(tree[name], getattr(self, name))
        known = [generator["name"] for generator in tree["generators"]]
        wanted = known if self.generators is None else self.generators
        unknown = [name for name in wanted if name not in known]
        if unknown:
            raise ValueError(f"variants.{self.name}: {unknown[0]!r} is not one of the generators {', '.join(known)}")
        tree["generators"] = [self._thinned(config) for config in tree["generators"] if config["name"] in wanted]
        if self.num_samples is not None:
            tree["generation"]["num_samples"] = min(self.num_samples, tree["generation"]["num_samples"])
        if tree["decision"]["regenerate_with"] not in wanted:
            tree["decision"]["regenerate_with"] = None
        tree["confounding"]["swap"] = [name for name in tree["confounding"]["swap"] if name in wanted]
        return tree

    def _thinned(self, generator: Tree) -> Tree:
        own = generator["num_samples"]
        if own is None or self.num_samples is None:
            return generator
        return {**generator, "num_samples": min(own, self.num_samples)}


def merged(section: Tree, changes: Mapping[str, Any]) -> Tree:
    """The section with changes; mappings on both sides are merged, other values replaced."""
    return section | {
        key: merged(section[key], value)
        if isinstance(value, Mapping) and isinstance(section.get(key), Mapping)
        else value
        for key, value in changes.items()
    }


class ConfoundingConfig(Section):
    """Settings of ``raydebm confounding`` and ``repair``: the style swap, which rewrites correct answers and compares
    their energies, and the amount of text that is scored again."""

    swap: tuple[str, ...] = ()
    """Generators whose correct answers are rewritten in the style of every generator, such as one that is selected too
    often. Costs one request per answer and style. Default: no swap."""
    rewriter: AskedGenerator | None = None
    """Model that writes every style from three examples. Default: each generator that is not recorded writes its own
    style. A vLLM server needs its ``url``, because none is started for rewriting."""
    max_texts: int = Field(4000, ge=1)
    """Maximum number of candidates for the style ablation, from whole test problems; each is scored in every style
    variant."""


def check_rewriters(generators: Sequence[GeneratorConfig]) -> None:
    """Check that the generators can rewrite their own answers, as they must without ``confounding.rewriter``.

    Raises:
        ValueError: none can, or one is a server that would have to be started for it.
    """
    if all(generator.kind == "recorded" for generator in generators):
        raise ValueError(
            "confounding.swap: recorded generators cannot rewrite; give confounding.rewriter, a "
            "generator that can (kind: openai, transformers or vllm)"
        )
    for generator in generators:
        if generator.kind == "vllm" and generator.url is None:
            raise ValueError(
                "confounding.swap: a vLLM server is started only for writing candidates; give generator "
                f"{generator.name!r} the `url` of one that is running, or give confounding.rewriter"
            )
