"""A whole recipe: one model per stage."""

from pydantic import Field, ValidationError, model_validator

from raydebm.config.baselines import BaselineConfig
from raydebm.config.decision import DecisionConfig
from raydebm.config.generators import GenerationConfig, GeneratorConfig
from raydebm.config.scorer import PairsConfig, ScorerConfig, TrainingConfig
from raydebm.config.section import PathName, Section, faults_in
from raydebm.config.studies import ConfoundingConfig, VariantConfig, check_rewriters
from raydebm.config.task import TaskConfig


class RayConfig(Section):
    """Placement on the cluster at RAY_ADDRESS, or else on a local one, with or without GPUs."""

    gpus_per_adapter: float | None = Field(None, ge=0, le=1)
    """GPU share per adapter. Default: 0.5 if the cluster has GPUs, else 0. With 0.5, five adapters are placed 2+2+1 on
    three GPUs; with 0, they train and score on CPUs."""
    cpus_per_adapter: float = Field(1.0, gt=0)
    """Logical CPUs per training or scoring worker, and its torch threads. On a local cluster without GPUs, (usable
    CPUs / threads) workers train or score at once."""
    max_workers: int | None = Field(None, ge=1)
    """Maximum number of labelling tasks, or of scoring tasks on CPUs, submitted at once to an existing cluster; its
    autoscaler may add nodes for them. Default: as many as the nodes can run now."""

    @property
    def threads(self) -> int:
        """Torch threads of a training or scoring worker."""
        return max(1, int(self.cpus_per_adapter))


class Recipe(Section):
    name: PathName
    """Name of the run, in reports and in ``run_dir``."""
    seed: int = 0
    """Seed of all random choices."""
    run_dir: str = "runs/{name}"
    """Run directory; on a cluster, on a disk that all nodes share. ``{name}`` and ``{task}`` are filled in. A URL that
    pyarrow opens (``s3://...``) works for reading and serving, but not for generating, which appends to journals."""
    task: TaskConfig
    """Problems, and how answers are judged."""
    generators: tuple[GeneratorConfig, ...]
    """Sources of candidates; names must differ."""
    generation: GenerationConfig = GenerationConfig()
    """Sampling of candidates."""
    pairs: PairsConfig = PairsConfig()
    """Training pairs."""
    scorer: ScorerConfig = ScorerConfig()
    """Encoder and adapters."""
    training: TrainingConfig = TrainingConfig()
    """Training of the adapters."""
    decision: DecisionConfig = DecisionConfig()
    """Accept, regenerate or abstain: rule, limits, calibration and guarantee."""
    baselines: tuple[BaselineConfig, ...] = ()
    """Third-party models that rank the same candidates (docs/baselines.md)."""
    confounding: ConfoundingConfig = ConfoundingConfig()
    """Confounding report and repair (docs/confounding.md)."""
    variants: tuple[VariantConfig, ...] = ()
    """Further scorers on the same candidates and labels, for `raydebm reproduce` (docs/paper.md)."""
    ray: RayConfig = RayConfig()
    """Placement and cluster."""

    @model_validator(mode="after")
    def _consistent(self) -> "Recipe":
        names = [generator.name for generator in self.generators]
        if not names:
            raise ValueError("generators: at least one generator is needed")
        doubles = {name for name in names if names.count(name) > 1}
        if doubles:
            raise ValueError(f"generators: names must differ, found more than once: {', '.join(sorted(doubles))}")
        for source in self.confounding.swap:
            if source not in names:
                raise ValueError(f"confounding.swap: {source!r} is not one of the generators {', '.join(names)}")
        if self.confounding.swap and self.confounding.rewriter is None:
            check_rewriters(self.generators)
        selectors = [baseline.name for baseline in self.baselines]
        if len(set(selectors)) != len(selectors):
            raise ValueError(f"baselines: names must differ, got {', '.join(selectors)}")
        if self.decision.regenerate_with is not None and self.decision.regenerate_with not in names:
            raise ValueError(
                f"decision.regenerate_with: {self.decision.regenerate_with!r} is not one of the generators "
                f"{', '.join(names)}"
            )
        return self

    @model_validator(mode="after")
    def _variants_are_recipes(self) -> "Recipe":
        names = [variant.name for variant in self.variants]
        if len(set(names)) != len(names):
            raise ValueError(f"variants: names must differ, got {', '.join(names)}")
        for variant in self.variants:
            try:
                self.with_variant(variant)
            except ValidationError as error:
                faults = "; ".join(faults_in(error, root="recipe"))
                raise ValueError(f"variants.{variant.name}: {faults}") from error
        return self

    def with_variant(self, variant: VariantConfig) -> "Recipe":
        """The recipe of a variant; its run directory is still this recipe's.

        Raises:
            pydantic.ValidationError: the variant's settings are not valid.
            ValueError: it names an unknown generator.
        """
        return Recipe.model_validate(variant.applied_to(self.model_dump(mode="json", by_alias=True)))

    @property
    def training_seed(self) -> int:
        """Seed of everything between the labels and the trained adapters."""
        return self.seed if self.pairs.seed is None else self.pairs.seed

    @property
    def evidence(self) -> tuple[BaselineConfig, ...]:
        """The baselines whose scores are evidence for the posterior."""
        if self.decision.rule != "posterior":
            return ()
        return tuple(baseline for baseline in self.baselines if baseline.is_evidence)

    @property
    def wants_out_of_bag(self) -> bool:
        """Whether the posterior should be fitted on training problems too, with out-of-bag scores.

        The run may lack these scores (``RunDir.learns_out_of_bag``). Later passes are sampled for validation problems
        only, so a policy of several passes is fitted on those.
        """
        has_one_pass = self.decision.max_passes == 1 or all(
            generator.kind == "recorded" for generator in self.generators
        )
        return self.decision.rule == "posterior" and has_one_pass

    @property
    def resolved_run_dir(self) -> str:
        """``run_dir`` with ``{name}`` and ``{task}`` filled in."""
        return self.run_dir.replace("{name}", self.name).replace("{task}", self.task.name)
