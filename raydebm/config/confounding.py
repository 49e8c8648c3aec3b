"""Recipe section ``confounding``: who rewrites answers, and how much is scored again."""

from collections.abc import Sequence

from pydantic import Field

from raydebm.config.generators import AskedGenerator, GeneratorConfig
from raydebm.config.section import Section


class ConfoundingConfig(Section):
    """Of ``raydebm confounding`` and ``repair``: the style swap, in which a correct answer is rewritten and its energy
    compared, and how much is scored again."""

    swap: tuple[str, ...] = ()
    """Generators whose correct answers are rewritten in the style of every generator, such as one that is picked too
    often. Costs a request per answer and style; empty: none."""
    rewriter: AskedGenerator | None = None
    """Who writes every style, shown answers of it; None: each generator writes its own, if it can be asked. A vLLM
    server must have its ``url``: none is started for rewriting."""
    num_examples: int = Field(3, ge=1)
    """Correct answers to validation problems that ``rewriter`` is shown of a style."""
    max_problems: int = Field(40, ge=1)
    """Answers per source; the paper rewrites 40."""
    max_ablation_problems: int | None = Field(100, ge=1)
    """Test problems whose candidates are scored again in every variant of style, drawn by the seed; None: all."""
    max_probe_texts: int | None = Field(4000, ge=1)
    """Candidates of whole test problems that the linear probes see; None: all."""
    repair_cap: int = Field(396, ge=1)
    """Answers of one generator and label that the repair learns from, at most (the paper's number)."""
    repair_min_cell: int = Field(8, ge=1)
    """A generator with fewer answers of either label is left out of the repair: its name tells the label there."""


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
