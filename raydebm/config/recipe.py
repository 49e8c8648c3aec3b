"""A whole recipe: one model per stage."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationError, model_validator

from raydebm.config.baselines import BaselineConfig, EvidenceBaseline
from raydebm.config.confounding import ConfoundingConfig, check_rewriters
from raydebm.config.generators import GeneratorConfig
from raydebm.config.policy import NonNegative, PolicySettings, Profile
from raydebm.config.section import Section
from raydebm.config.variants import VariantConfig
from raydebm.records import Reasoning, Sampling


class SplitSource(Section):
    """Source of the problems of one split."""

    split: Literal["train", "test"]
    """Part of the source, by the task's own name."""
    source: str | None = None
    """None: the task's default (a hub data set, or its own puzzle generator); otherwise a file, a folder, or what the
    task documents."""
    limit: int | None = Field(None, ge=1)
    """Maximum number of problems, after ``id_range``; None: all."""
    id_range: tuple[float, float] = (0.0, 1.0)
    """Keep problems whose id hashes into [low, high): splits data that has only one part, independently of its
    order."""

    @model_validator(mode="after")
    def _range(self) -> "SplitSource":
        low, high = self.id_range
        if not 0 <= low < high <= 1:
            raise ValueError(f"id_range must satisfy 0 <= low < high <= 1, got {self.id_range}")
        return self


class TaskConfig(Section):
    name: str
    """A built-in or installed task, or the path of a task file (``.yaml``), which is read into ``definition``."""
    definition: dict[str, Any] | None = None
    """Contents of a task file, embedded in the recipe so that every process on every node has it."""
    data: Literal["paper"] | None = None
    """``paper``: exactly the paper's problems of the task (docs/paper.md); the sources of ``train`` and ``test`` are
    then whole copies of the published data, and None the hub's. None: whatever the sources hold."""
    train: SplitSource = SplitSource(split="train")
    """Problems for training and validation."""
    test: SplitSource = SplitSource(split="test")
    """Problems for the evaluation; none of them may be a training problem."""

    @model_validator(mode="after")
    def _one_task(self) -> "TaskConfig":
        if self.definition is not None and self.definition.get("name") != self.name:
            raise ValueError(
                f"task.name is {self.name!r}, but task.definition declares {self.definition.get('name')!r}; "
                "leave the definition out, or name its task"
            )
        return self


class GenerationConfig(Section):
    """Paper: 4 generators x 8 candidates, T=0.7, top-p 0.95, one request per candidate."""

    num_samples: int = Field(8, ge=1)
    """Candidates per generator and problem."""
    temperature: float = Field(0.7, ge=0)
    """Sampling temperature; the greedy sample uses 0."""
    top_p: float = Field(0.95, gt=0, le=1)
    """Probability mass of nucleus sampling."""
    max_tokens: int | None = Field(None, ge=1)
    """Most tokens of a candidate; None: the task's default."""
    greedy: bool = True
    """Add one sample at temperature 0 per generator, the greedy baseline."""
    max_usd: float | None = Field(None, gt=0)
    """Stop sending requests when the run has cost this much: candidates, later passes, judges and rewriting together.
    A failed request counts what it was billed, one that timed out what it may have cost at most."""
    num_in_flight: int = Field(256, ge=1)
    """Open requests over all endpoints of one process."""
    num_processes: int = Field(1, ge=1)
    """Generation actors per generator group."""
    max_failed_frac: float = Field(0.5, gt=0, le=1)
    """Stop the run when a larger share of its requests failed; completed requests are kept."""
    waves: tuple[Annotated[int, Field(ge=1)], ...] | None = Field(None, min_length=1)
    """Sample each problem in waves of these sizes, over all generators, the last one repeating, and end it when the
    rest of its candidates could hardly change the vote (docs/stopping.md); None: all candidates at once."""
    epsilon: float = Field(0.05, ge=0, lt=1)
    """With ``waves``: chance that is accepted of losing the vote that all candidates would give."""

    def sampling(self, *, max_tokens: int, greedy: bool = False) -> Sampling:
        if greedy:
            return Sampling(temperature=0.0, top_p=1.0, max_tokens=max_tokens)
        return Sampling(temperature=self.temperature, top_p=self.top_p, max_tokens=max_tokens)


class FoldConfig(Section):
    """One fold of all problems of a recipe, those of ``task.train`` and ``task.test`` together. Problems are assigned
    by the run's seed, and those with the same text share a fold."""

    count: int = Field(ge=2)
    """Number of folds."""
    index: int = Field(ge=0)
    """The fold to test, from 0; training and validation use the others."""

    @model_validator(mode="after")
    def _known(self) -> "FoldConfig":
        if self.index >= self.count:
            raise ValueError(f"pairs.fold.index must be below pairs.fold.count = {self.count}, got {self.index}")
        return self


class PairsConfig(Section):
    max_pairs: int | None = Field(16, ge=1)
    """Pairs per problem; null: all pairs."""
    max_correct: int | None = Field(None, ge=1)
    """Correct candidates per problem; None: the task's default (all, or the paper's limit for the task)."""
    max_incorrect: int | None = Field(None, ge=1)
    """Incorrect candidates per problem, the least severe failures first; None: the task's default."""
    within_author: bool = False
    """Pair only texts of the same generator, so that adapters cannot learn who wrote a text instead of whether it is
    right. Needs several samples per generator and problem; ``max_correct`` and ``max_incorrect`` then apply per
    generator and problem."""
    validation_frac: float = Field(0.2, gt=0, lt=1)
    """Share of the training problems reserved for early stopping and calibration."""
    bag_frac: float = Field(0.8, gt=0, le=1)
    """Share of the remaining problems that each adapter is trained on, drawn per adapter."""
    positive_frac: float = Field(0.25, gt=0, lt=1)
    """For tasks with violation scores: the share of a problem's best candidates that counts as correct (paper: 25
    %)."""
    seed: int | None = None
    """Seed of the split into training and validation, the pairs, the bags and the adapters; None: the run's seed.
    Another seed trains again on the same candidates (`raydebm seeds`)."""
    fold: FoldConfig | None = None
    """Test one fold of all problems and train on the others (`raydebm seeds --folds`); None: the problems of
    ``task.test`` are tested."""


class AdapterConfig(Section):
    """One LoRA set. ``targets`` are the paper's roles, or names of the backbone's modules (see scorer.targets)."""

    name: str
    """Name of its folder in the checkpoint."""
    rank: int = Field(ge=1)
    """Rank of the low-rank matrices."""
    alpha: int = Field(ge=1)
    """The update is scaled by alpha / rank."""
    targets: tuple[str, ...] = Field(min_length=1)
    """Layers to adapt: ``Wqkv`` (attention in), ``Wo`` (attention and feed-forward out), ``Wi`` (feed-forward in), or
    names of the backbone's modules, such as ``q_proj``."""
    dropout: float = Field(0.2, ge=0, lt=1)
    """Dropout on the input of the low-rank update."""


PAPER_ADAPTERS = (
    AdapterConfig(name="a0", rank=8, alpha=16, targets=("Wqkv",)),
    AdapterConfig(name="a1", rank=8, alpha=16, targets=("Wqkv", "Wo")),
    AdapterConfig(name="a2", rank=16, alpha=32, targets=("Wqkv",)),
    AdapterConfig(name="a3", rank=4, alpha=8, targets=("Wqkv",)),
    AdapterConfig(name="a4", rank=8, alpha=16, targets=("Wqkv", "Wi")),
)
"""Paper, table of the heterogeneous LoRA ensemble."""


Pooling = Literal["cls", "mean", "last"]
Loss = Literal["bradley_terry", "listwise"]


class ScorerConfig(Section):
    backbone: str = "answerdotai/ModernBERT-base"
    """An encoder or a decoder: hub name, local folder, ``embedded:encoder-mini`` or ``package:minilm``."""
    max_length: int | None = Field(None, ge=16)
    """Maximum input tokens; None: the task's default, clipped to the backbone's context."""
    adapters: tuple[AdapterConfig, ...] = PAPER_ADAPTERS
    """The ensemble's members; the default is the paper's five."""
    head_dropout: float = Field(0.2, ge=0, lt=1)
    """Dropout inside the energy head."""
    pooling: Pooling = "cls"
    """Input of the head: the state of [CLS] (as in the paper), the mean of the token states, or the state of the last
    token. A decoder takes ``last`` or ``mean``."""
    reasoning: Reasoning = "answer"
    """Text to score when a model thinks before it answers: the ``answer`` alone, or ``all``, thinking and answer (the
    paper captures both). The default is ``answer`` because thinking reveals the author, fills the context, and is
    withheld by many endpoints, so that the candidates of a pool would not be comparable."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Type of the encoder; auto: float32 on CPUs, bfloat16 on GPUs. Heads and energies are float32."""
    device: str = "auto"
    """auto: the first visible GPU, else the CPU; or a torch device name."""
    micro_batch_tokens: int = Field(8192, ge=1)
    """Padded tokens per forward pass."""

    @model_validator(mode="after")
    def _distinct_adapters(self) -> "ScorerConfig":
        names = [adapter.name for adapter in self.adapters]
        if not names or len(set(names)) != len(names):
            raise ValueError(f"scorer.adapters needs at least one adapter and distinct names, got {names}")
        return self


TrackerName = Literal["tensorboard", "wandb", "mlflow"]


class TrackingConfig(Section):
    """Names of a training at its trackers."""

    project: str = Field("raydebm", min_length=1)
    """Project of Weights & Biases, experiment of MLflow."""
    run_name: str | None = Field(None, min_length=1)
    """Name of the run; None: the recipe's name. Adapters are reported below it: ``<run>/a0``."""


class TrainingConfig(Section):
    loss: Loss = "bradley_terry"
    """``bradley_terry``: over pairs (as in the paper). ``listwise``: the probability that softmax(-E) over a problem's
    candidates gives to the correct ones."""
    learning_rate: float | None = Field(None, gt=0)
    """AdamW learning rate; None: the task's default (5e-5; K&K 2e-5)."""
    batch_size: int | None = Field(None, ge=1)
    """Pairs per optimiser step (``docs/training.md``); None: the task's default."""
    patience: int | None = Field(None, ge=1)
    """Epochs without a lower validation loss before training ends; None: the task's default."""
    max_epochs: int = Field(10, ge=1)
    """Maximum number of epochs."""
    weight_decay: float = Field(0.01, ge=0)
    """AdamW weight decay."""
    warmup_frac: float = Field(0.1, ge=0, lt=1)
    """Share of all steps during which the learning rate rises; afterwards it follows a cosine decay."""
    max_grad_norm: float = Field(1.0, gt=0)
    """Maximum gradient norm."""
    max_validation_problems: int | None = Field(None, ge=1)
    """Maximum number of validation problems per epoch; None: all."""
    report_to: Annotated[
        tuple[TrackerName, ...], BeforeValidator(lambda value: [value] if isinstance(value, str) else value)
    ] = ()
    """Trackers that receive every epoch of every adapter (docs/training.md); changing it causes no new training."""
    tracking: TrackingConfig = TrackingConfig()
    """Names under which a training is reported."""

    @model_validator(mode="after")
    def _distinct_trackers(self) -> "TrainingConfig":
        if len(set(self.report_to)) != len(self.report_to):
            raise ValueError(f"report_to: trackers must differ, got {', '.join(self.report_to)}")
        return self


REPORTING = {"report_to", "tracking"}
"""Settings of training that do not affect the trained weights."""


class TriageConfig(PolicySettings):
    """Accept, regenerate or abstain: by the posterior over answers, or by the paper's Eq. 3 and Algorithm 1."""

    profile: Profile | Literal["auto"] = "auto"
    """How the posterior's rule selects; ``auto``: a richer profile replaces a simpler one where a paired test on
    held-out problems is significant."""
    lambda_: NonNegative | None = Field(None, alias="lambda")
    """Weight of E_constraint; None: the calibrated value, else the task's default."""
    regenerate_with: str | None = None
    """Generator of later passes; None: the first one (Qwen-2.5-7B in the paper)."""


class CalibrationConfig(Section):
    enabled: bool = True
    """Choose lambda and both thresholds on validation problems; otherwise those of ``triage`` apply."""
    lambdas: tuple[float, ...] = (0.0, 0.5, 1.0, 2.0, 4.0)
    """Values of lambda to try, in addition to the recipe's own."""
    num_thresholds: int = Field(12, ge=2)
    """Grid points per threshold, at quantiles of the observed sigma."""
    max_abstain_frac: float = Field(0.10, ge=0, le=1)
    """Maximum share of validation problems on which the thresholds may abstain."""


class CostsConfig(Section):
    """Costs by which thresholds are chosen without a promise, in units of one right answer."""

    wrong: float = Field(1.0, ge=0)
    """Cost of a wrong answer."""
    refusal: float = Field(0.0, ge=0)
    """Cost of an abstention."""
    pass_: float = Field(0.05, alias="pass", ge=0)
    """Cost of a further pass."""


class DecisionConfig(Section):
    """Calibration of the posterior's rule, and the promise about its answers."""

    costs: CostsConfig = CostsConfig()
    """Without ``max_error``, thresholds maximise right answers minus these costs."""
    max_error: float | Literal["auto"] | None = None
    """Promise: the largest share of wrong answers among those returned (mean violation where labels are violation
    scores). ``auto``: the smallest share that can be promised at ``min_coverage``. None: no promise."""
    confidence: float = Field(0.9, gt=0, lt=1)
    """Probability, over calibration problems, with which the promise holds."""
    min_coverage: float = Field(0.5, gt=0, le=1)
    """Share of problems that ``max_error: auto`` must answer."""
    delta: float = Field(0.1, gt=0, lt=1)
    """Chance that a richer profile replaces a simpler one that is better."""
    out_of_bag: bool = True
    """Also learn from training problems, by the adapters that did not train on them; costs their scoring."""

    @model_validator(mode="after")
    def _possible(self) -> "DecisionConfig":
        if isinstance(self.max_error, float) and not 0 < self.max_error < 1:
            raise ValueError(f"decision.max_error must be strictly between 0 and 1, or auto, got {self.max_error}")
        return self


class PricesConfig(Section):
    """Prices in US dollars that are not in the records, for the cost of each selector."""

    usd_per_candidate: dict[str, float] = Field(default_factory=dict)
    """Per generator: price of a candidate whose cost is not recorded."""
    usd_per_score: dict[str, float] = Field(default_factory=dict)
    """Per baseline: price of scoring one candidate (a call of a judge or reward model; without a price, what the
    judge's endpoint billed); ``energies``: price of scoring one candidate with the ensemble."""


class EvaluationConfig(Section):
    num_bootstrap: int = Field(2000, ge=100)
    """Bootstrap resamples of the intervals."""
    shuffle_seed: int = 42
    """Seed of the candidates' order in a pool, so that the order does not reveal their generators."""
    tolerance: float = Field(0.15, ge=0, le=1)
    """Violation score up to which a candidate counts as correct in pass@n, for tasks with such scores (the paper's
    value); everywhere else a candidate is correct only without any violation."""
    prices: PricesConfig = PricesConfig()
    """Prices for the cost of every selector."""
    two_pass: bool = True
    """Sample later passes of the test problems, for the rows about the whole loop."""


class RayConfig(Section):
    """Placement on the cluster: the same code runs on 3 GPUs, on 1, and on 2 CPU cores."""

    address: str | None = None
    """Address of the cluster; None: RAY_ADDRESS if set, else a local cluster is started."""
    num_cpus: int | None = Field(None, ge=4)
    """Logical CPUs of the local cluster; at least 4, because Ray Data hangs with two."""
    num_gpus: int | None = Field(None, ge=0)
    """GPUs of the local cluster; None: those that torch sees."""
    gpus_per_adapter: float | None = Field(None, ge=0, le=1)
    """GPU share per adapter; None: 0.5 if the cluster has GPUs, else 0. With 0.5, five adapters are placed 2+2+1 on
    three GPUs."""
    cpus_per_adapter: float = Field(1.0, gt=0)
    """Logical CPUs per training or scoring worker."""
    threads_per_worker: int = Field(1, ge=1)
    """Torch threads per CPU worker."""
    max_failures: int = Field(2, ge=0)
    """Maximum number of restarts of an adapter's worker."""
    object_store_mb: int = Field(512, ge=100)
    """Object store of the local cluster, in MB."""


def _reasons(error: ValidationError) -> str:
    return "; ".join(f"{'.'.join(map(str, found['loc']))}: {found['msg']}" for found in error.errors())


class Recipe(Section):
    name: str
    """Name of the run, in reports and in ``run_dir``."""
    seed: int = 0
    """Seed of all random choices."""
    run_dir: str = "runs/{name}"
    """Run directory; on a cluster, on a disk that all nodes share. ``{name}`` and ``{task}`` are filled in. A URL that
    pyarrow opens (``s3://...``) can be read and served from, but not generated into, because journals are appended
    to."""
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
    triage: TriageConfig = TriageConfig()
    """Accept, regenerate or abstain."""
    calibration: CalibrationConfig = CalibrationConfig()
    """Choice of lambda and of the thresholds on sigma."""
    decision: DecisionConfig = DecisionConfig()
    """Calibration of the posterior's rule, and its promise."""
    evaluation: EvaluationConfig = EvaluationConfig()
    """Comparison of selectors."""
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
                raise ValueError(f"confounding.swap: {source!r} is none of the generators {', '.join(names)}")
        if self.confounding.swap and self.confounding.rewriter is None:
            check_rewriters(self.generators)
        selectors = [baseline.name for baseline in self.baselines]
        if len(set(selectors)) != len(selectors):
            raise ValueError(f"baselines: names must differ, got {', '.join(selectors)}")
        if self.triage.regenerate_with is not None and self.triage.regenerate_with not in names:
            raise ValueError(
                f"triage.regenerate_with names generator {self.triage.regenerate_with!r}; known: {', '.join(names)}"
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
                raise ValueError(f"variants.{variant.name}: {_reasons(error)}") from error
        return self

    def with_variant(self, variant: VariantConfig) -> "Recipe":
        """The recipe of a variant; its run directory is still this recipe's.

        Raises:
            pydantic.ValidationError: the variant's settings make no recipe.
            ValueError: it names an unknown generator.
        """
        return Recipe.model_validate(variant.applied_to(self.model_dump(mode="json", by_alias=True)))

    @property
    def training_seed(self) -> int:
        """Seed of everything between the labels and the trained adapters."""
        return self.seed if self.pairs.seed is None else self.pairs.seed

    @property
    def evidence(self) -> tuple[BaselineConfig, ...]:
        """The baselines whose scores are evidence of the posterior."""
        if self.triage.rule != "posterior":
            return ()
        return tuple(found for found in self.baselines if isinstance(found, EvidenceBaseline) and found.evidence)

    @property
    def learns_out_of_bag(self) -> bool:
        """Whether training candidates are scored so that the posterior can learn from them too.

        Later passes are sampled for validation problems only, so a policy of several passes is fitted on those.
        """
        has_one_pass = self.triage.max_passes == 1 or all(found.kind == "recorded" for found in self.generators)
        return self.triage.rule == "posterior" and self.decision.out_of_bag and has_one_pass

    @property
    def resolved_run_dir(self) -> str:
        return self.run_dir.replace("{name}", self.name).replace("{task}", self.task.name)
