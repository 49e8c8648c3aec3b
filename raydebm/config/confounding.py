"""Recipe section ``confounding``: the rewriter of answers, and the amount of text that is scored again."""

from collections.abc import Sequence

from pydantic import Field

from raydebm.config.generators import AskedGenerator, GeneratorConfig
from raydebm.config.section import Section


class ConfoundingConfig(Section):
    """Settings of ``raydebm confounding`` and ``repair``: the style swap, which rewrites correct answers and compares
    their energies, and the amount of text that is scored again."""

    swap: tuple[str, ...] = ()
    """Generators whose correct answers are rewritten in the style of every generator, such as one that is selected too
    often. Costs one request per answer and style. Default: no swap."""
    rewriter: AskedGenerator | None = None
    """Model that writes every style from three examples. Default: each generator that is not recorded writes its own
    style. A vLLM server needs its ``url``, because none is started for rewriting."""
    max_ablation_problems: int | None = Field(100, ge=1)
    """Number of test problems whose candidates are scored again in every style variant, chosen by the seed; null:
    all."""
    max_probe_texts: int | None = Field(4000, ge=1)
    """Maximum number of candidates for the linear probes, from whole test problems; null: all."""
    repair_cap: int = Field(396, ge=1)
    """Maximum number of answers per generator and label for the repair (the paper's value)."""
    repair_min_cell: int = Field(8, ge=1)
    """Minimum number of answers per generator and label; a generator with fewer is left out of the repair, because its
    name reveals the label."""


def check_rewriters(generators: Sequence[GeneratorConfig]) -> None:
    """Check that the generators can rewrite their own answers, as they must without ``confounding.rewriter``.

    Raises:
        ValueError: none can, or one is a server that would have to be started for it.
    """
    if all(generator.kind == "recorded" for generator in generators):
        raise ValueError(
            "confounding.swap: recorded generators cannot be asked to rewrite; give confounding.rewriter, a "
            "generator that can (kind: openai, transformers or vllm)"
        )
    for generator in generators:
        if generator.kind == "vllm" and generator.url is None:
            raise ValueError(
                "confounding.swap: a vLLM server is started to write candidates alone; give generator "
                f"{generator.name!r} the `url` of one that is running, or give confounding.rewriter"
            )
