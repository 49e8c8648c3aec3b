"""A whole recipe: one model per stage."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationError, model_validator

from raydebm.config.baselines import BaselineConfig
from raydebm.config.confounding import ConfoundingConfig, check_rewriters
from raydebm.config.generators import GeneratorConfig
from raydebm.config.section import Section
from raydebm.config.variants import VariantConfig
from raydebm.records import Reasoning, Sampling


class SplitSource(Section):
    """Where problems of one split come from."""

    split: Literal["train", "test"]
    """Which part of the source, as the task names its own."""
    source: str | None = None
    """None: the task's own default (hub data set or own maker); else a file, a folder or what the task documents."""
    limit: int | None = Field(None, ge=1)
    """The first so many of what ``id_range`` keeps; None: all."""
    id_range: tuple[float, float] = (0.0, 1.0)
    """Keep problems whose id hashes into [low, high): splits data that comes as one part, whatever its order."""

    @model_validator(mode="after")
    def _range(self) -> "SplitSource":
        low, high = self.id_range
        if not 0 <= low < high <= 1:
            raise ValueError(f"id_range must satisfy 0 <= low < high <= 1, got {self.id_range}")
        return self


class TaskConfig(Section):
    name: str
    """A built-in or installed task; or the path of a task file (``.yaml``), which is read into ``definition``."""
    definition: dict[str, Any] | None = None
    """A task file's content. It travels with the recipe, so that every process on every node has it."""
    data: Literal["paper"] | None = None
    """``paper``: exactly the paper's problems of the task (docs/paper.md); the sources of ``train`` and ``test`` are
    then whole copies of the published data, and None the hub's. None: whatever the sources hold."""
    train: SplitSource = SplitSource(split="train")
    """Problems for training and validation."""
    test: SplitSource = SplitSource(split="test")
    """Problems for the evaluation; none of them may be among those of training."""

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
    """Candidates of each generator per problem."""
    temperature: float = Field(0.7, ge=0)
    """Of samples; the greedy one has 0."""
    top_p: float = Field(0.95, gt=0, le=1)
    """Nucleus sampling."""
    max_tokens: int | None = Field(None, ge=1)
    """None: the task's default."""
    greedy: bool = True
    """One extra sample at T=0 per generator, the greedy baseline."""
    max_usd: float | None = Field(None, gt=0)
    """Stop sending requests when the run has cost so much: candidates, later passes, judges and rewriting together.
    Failed requests count what they were billed, and those whose reply did not come in time what they may have cost at
    most."""
    num_in_flight: int = Field(256, ge=1)
    """Over all endpoints of one process."""
    num_processes: int = Field(1, ge=1)
    """Generation actors per generator group."""
    max_failed_frac: float = Field(0.5, gt=0, le=1)
    """A run stops when more of its requests failed; what was answered is kept."""

    def sampling(self, *, max_tokens: int, greedy: bool = False) -> Sampling:
        if greedy:
            return Sampling(temperature=0.0, top_p=1.0, max_tokens=max_tokens)
        return Sampling(temperature=self.temperature, top_p=self.top_p, max_tokens=max_tokens)


class FoldConfig(Section):
    """One fold of all problems of a recipe, those of ``task.train`` and of ``task.test`` together. The problems are
    dealt by the run's seed, and those with the same text share a fold."""

    count: int = Field(ge=2)
    """Folds in all."""
    index: int = Field(ge=0)
    """The fold that is tested, from 0; training and validation have the others."""

    @model_validator(mode="after")
    def _known(self) -> "FoldConfig":
        if self.index >= self.count:
            raise ValueError(f"pairs.fold.index must be below pairs.fold.count = {self.count}, got {self.index}")
        return self


class PairsConfig(Section):
    max_pairs: int | None = Field(16, ge=1)
    """Per problem; null = all pairs."""
    max_correct: int | None = Field(None, ge=1)
    """Per problem; None: the task's default (all, or the paper's limit for the task)."""
    max_incorrect: int | None = Field(None, ge=1)
    """Per problem, the least severe failures first; None: the task's default."""
    within_author: bool = False
    """Pair texts of the same generator only, so that adapters cannot learn who wrote a text in place of whether it is
    right. Needs several samples of a generator per problem; ``max_correct`` and ``max_incorrect`` then hold for each
    generator of a problem."""
    validation_frac: float = Field(0.2, gt=0, lt=1)
    """Share of the training problems kept for early stopping and calibration."""
    bag_frac: float = Field(0.8, gt=0, le=1)
    """Share of the other problems that each adapter is trained on, drawn for each."""
    positive_frac: float = Field(0.25, gt=0, lt=1)
    """Continuous tasks: the best share of a problem's candidates counts as correct (paper: top 25 %)."""
    seed: int | None = None
    """Of the split into training and validation, the pairs, the bags and the adapters; None: the run's seed. Another
    one trains anew on the same candidates (`raydebm seeds`)."""
    fold: FoldConfig | None = None
    """Test one fold of all problems and train on the others (`raydebm seeds --folds`); None: the problems of
    ``task.test`` are tested."""


class AdapterConfig(Section):
    """One LoRA set. ``targets`` are ModernBERT names; other backbones map them (see scorer.lora)."""

    name: str
    """Its folder in the checkpoint."""
    rank: int = Field(ge=1)
    """Of the low-rank matrices."""
    alpha: int = Field(ge=1)
    """The update is scaled by alpha / rank."""
    targets: tuple[Literal["Wqkv", "Wo", "Wi"], ...]
    """Projections that are adapted: attention in, attention out, MLP in."""
    dropout: float = Field(0.2, ge=0, lt=1)
    """On the input of the low-rank update."""


PAPER_ADAPTERS = (
    AdapterConfig(name="a0", rank=8, alpha=16, targets=("Wqkv",)),
    AdapterConfig(name="a1", rank=8, alpha=16, targets=("Wqkv", "Wo")),
    AdapterConfig(name="a2", rank=16, alpha=32, targets=("Wqkv",)),
    AdapterConfig(name="a3", rank=4, alpha=8, targets=("Wqkv",)),
    AdapterConfig(name="a4", rank=8, alpha=16, targets=("Wqkv", "Wi")),
)
"""Paper, table of the heterogeneous LoRA ensemble."""


Pooling = Literal["cls", "mean"]
Loss = Literal["bradley_terry", "listwise"]


class ScorerConfig(Section):
    backbone: str = "answerdotai/ModernBERT-base"
    """Hub name, local folder, ``embedded:encoder-mini`` or ``package:minilm``."""
    max_length: int | None = Field(None, ge=16)
    """Tokens; None: the task's default, clipped to the backbone's context."""
    adapters: tuple[AdapterConfig, ...] = PAPER_ADAPTERS
    """The ensemble's members; the default is the paper's five."""
    head_dropout: float = Field(0.2, ge=0, lt=1)
    """Inside the energy head."""
    pooling: Pooling = "cls"
    """What a head reads: the state of [CLS] (the paper), or the mean over the tokens' states."""
    reasoning: Reasoning = "answer"
    """What is scored of a model that thinks before it answers: the ``answer`` alone, or ``all``, thinking and answer
    (the paper captures both). ``answer`` is the default because thinking shows who wrote it, fills the context,
    and is withheld by many endpoints, so that the candidates of a pool would differ in kind."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Of the encoder; auto: float32 on CPUs, bfloat16 on GPUs. Heads and energies are float32."""
    device: str = "auto"
    """auto: the first visible GPU, else the CPU; or a name of torch."""
    micro_batch_tokens: int = Field(8192, ge=1)
    """Padded tokens of one forward pass."""

    @model_validator(mode="after")
    def _distinct_adapters(self) -> "ScorerConfig":
        names = [adapter.name for adapter in self.adapters]
        if not names or len(set(names)) != len(names):
            raise ValueError(f"scorer.adapters needs at least one adapter and distinct names, got {names}")
        return self


TrackerName = Literal["tensorboard", "wandb", "mlflow"]


class TrackingConfig(Section):
    """How a training is called where it is reported to."""

    project: str = Field("raydebm", min_length=1)
    """Project of Weights & Biases, experiment of MLflow."""
    run_name: str | None = Field(None, min_length=1)
    """None: the recipe's name. Adapters are members of it: ``<run>/a0``."""


class TrainingConfig(Section):
    loss: Loss = "bradley_terry"
    """``bradley_terry``: over pairs (the paper). ``listwise``: the probability that softmax(-E) over a problem's
    candidates gives to the correct ones."""
    learning_rate: float | None = Field(None, gt=0)
    """None: the task's default (5e-5; K&K 2e-5)."""
    batch_size: int | None = Field(None, ge=1)
    """Pairs per optimiser step (``docs/training.md``); None: the task's default."""
    patience: int | None = Field(None, ge=1)
    """Epochs without a better validation loss before a training ends; None: the task's default."""
    max_epochs: int = Field(10, ge=1)
    """Epochs at most."""
    weight_decay: float = Field(0.01, ge=0)
    """Of AdamW."""
    warmup_frac: float = Field(0.1, ge=0, lt=1)
    """Share of all steps in which the learning rate rises; then it falls along a cosine."""
    max_grad_norm: float = Field(1.0, gt=0)
    """Gradients are clipped to this norm."""
    max_validation_problems: int | None = Field(None, ge=1)
    """Problems that an epoch is judged by; None: all."""
    report_to: Annotated[
        tuple[TrackerName, ...], BeforeValidator(lambda value: [value] if isinstance(value, str) else value)
    ] = ()
    """Trackers that get every epoch of every adapter (see docs/training.md); changing it trains nothing again."""
    tracking: TrackingConfig = TrackingConfig()
    """Names under which it is reported."""

    @model_validator(mode="after")
    def _distinct_trackers(self) -> "TrainingConfig":
        if len(set(self.report_to)) != len(self.report_to):
            raise ValueError(f"report_to: trackers must differ, got {', '.join(self.report_to)}")
        return self


REPORTING = {"report_to", "tracking"}
"""Settings of training that change nothing about what is trained."""


class TriageConfig(Section):
    """Accept, regenerate or abstain: by the posterior over answers, or by the paper's Eq. 3 and Algorithm 1."""

    rule: Literal["posterior", "paper"] = "posterior"
    """``posterior``: thresholds on the probability that the answer is right, fitted on labelled problems.
    ``paper``: thresholds on sigma."""
    profile: Literal["auto", "vote", "best_author", "energy", "energy_vote", "posterior"] = "auto"
    """How the posterior's rule selects; ``auto``: a richer profile replaces a simpler one where a paired test on
    held-out problems says so."""
    tau_accept: float = Field(0.9, ge=0, le=1)
    """Accept at or above this probability without a further pass; calibration may replace it."""
    tau_answer: float = Field(0.5, ge=0, le=1)
    """After the last pass, refuse below this probability; calibration may replace it."""

    lambda_: float | None = Field(None, alias="lambda", ge=0)
    """None: the task's default, or what calibration found."""
    theta_sigma: float = Field(0.8, ge=0)
    """Accept up to this sigma, where no constraint is broken; calibration may replace it."""
    theta_abstain: float = Field(1.5, ge=0)
    """After the last pass (``signal: equation``: after any), refuse above this sigma; calibration may replace it."""
    signal: Literal["selected", "pool_mean", "equation"] = "selected"
    """The gate. ``selected``: sigma of the selected candidate; ``pool_mean``: the mean sigma of the pool (Algorithm 1);
    both try again before they refuse. ``equation``: sigma of the selected candidate, which refuses at once above
    ``theta_abstain`` where no constraint is broken (Eq. 3)."""
    max_passes: int = Field(2, ge=1)
    """Passes at most; 1 never regenerates."""
    num_regenerate: int = Field(8, ge=1)
    """N2: candidates of each later pass."""
    regenerate_with: str | None = None
    """The generator of later passes; None: the first one (the paper's Qwen-2.5-7B)."""

    @model_validator(mode="after")
    def _ordered(self) -> "TriageConfig":
        if self.tau_answer > self.tau_accept:
            raise ValueError(
                f"triage.tau_answer must be at most triage.tau_accept, got {self.tau_answer} and {self.tau_accept}"
            )
        if not self.theta_sigma < self.theta_abstain:
            raise ValueError(
                "triage.theta_sigma must be below triage.theta_abstain, "
                f"got {self.theta_sigma} and {self.theta_abstain}"
            )
        return self


class CalibrationConfig(Section):
    enabled: bool = True
    """Choose lambda and both thresholds on validation problems; else those of ``triage`` stay."""
    lambdas: tuple[float, ...] = (0.0, 0.5, 1.0, 2.0, 4.0)
    """Values tried, beside the recipe's own."""
    num_thresholds: int = Field(12, ge=2)
    """Grid points per threshold, at quantiles of the observed sigma."""
    max_abstain_frac: float = Field(0.10, ge=0, le=1)
    """Share of the validation problems that thresholds may refuse."""


class CostsConfig(Section):
    """What counts when thresholds are chosen without a promise, in units of one right answer."""

    wrong: float = Field(1.0, ge=0)
    """Cost of a wrong answer."""
    refusal: float = Field(0.0, ge=0)
    """Cost of giving no answer."""
    pass_: float = Field(0.05, alias="pass", ge=0)
    """Cost of a further pass."""


class DecisionConfig(Section):
    """How the posterior's rule is calibrated, and what is promised about its answers."""

    costs: CostsConfig = CostsConfig()
    """Without ``max_error``, thresholds maximise right answers minus these costs."""
    max_error: float | Literal["auto"] | None = None
    """Promise: the largest share of wrong answers among those given out (mean violation where labels are violation
    scores). ``auto``: the smallest that can be promised at ``min_coverage``. None: no promise."""
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
    """US dollars of what an evaluation cannot see billed, for the cost of each selector."""

    usd_per_candidate: dict[str, float] = Field(default_factory=dict)
    """Generator: price of one candidate whose own cost is not recorded."""
    usd_per_score: dict[str, float] = Field(default_factory=dict)
    """Baseline: price of one candidate that it scores (a judge's or reward model's call; what a judge's endpoint has
    billed is taken where no price stands here); ``energies``: of one candidate that the ensemble scores."""


class EvaluationConfig(Section):
    num_bootstrap: int = Field(2000, ge=100)
    """Resamples of the intervals."""
    shuffle_seed: int = 42
    """Of the candidates' order in a pool, which says nothing about their generators then."""
    tolerance: float = Field(0.15, ge=0, le=1)
    """Violation score up to which a candidate counts as correct in pass@n, where the task has such scores (the paper's
    figure); everywhere else it is correct without any violation."""
    prices: PricesConfig = PricesConfig()
    """For the cost beside every selector."""
    two_pass: bool = True
    """Draw later passes of the test problems, for the rows about the whole loop."""


class RayConfig(Section):
    """Placement by configuration alone: the same code runs on 3 GPUs, on 1, and on 2 CPU cores."""

    address: str | None = None
    """None: RAY_ADDRESS when set, else a cluster of our own on this machine."""
    num_cpus: int | None = Field(None, ge=4)
    """Logical CPUs of our own cluster; never below 4 (two logical CPUs hang Ray Data)."""
    num_gpus: int | None = Field(None, ge=0)
    """Declared GPUs of our own cluster; None: what torch sees."""
    gpus_per_adapter: float | None = Field(None, ge=0, le=1)
    """None: 0.5 when the cluster has GPUs, else 0. 0.5 places five adapters 2+2+1 on three GPUs."""
    cpus_per_adapter: float = Field(1.0, gt=0)
    """Logical CPUs of a training or scoring worker."""
    threads_per_worker: int = Field(1, ge=1)
    """Threads of torch in a worker on CPUs."""
    max_failures: int = Field(2, ge=0)
    """Restarts of one adapter's worker."""
    object_store_mb: int = Field(512, ge=100)
    """Shared memory of our own cluster."""


def _reasons(error: ValidationError) -> str:
    return "; ".join(f"{'.'.join(map(str, found['loc']))}: {found['msg']}" for found in error.errors())


class Recipe(Section):
    name: str
    """Of the run, in reports and in ``run_dir``."""
    seed: int = 0
    """Of everything that is drawn."""
    run_dir: str = "runs/{name}"
    """A folder; on a cluster one on a disk that all nodes share. ``{name}`` and ``{task}`` are filled in. A URL that
    pyarrow opens (``s3://...``) can be read and served from, but not be generated into: journals are appended to."""
    task: TaskConfig
    """What is asked, and how it is judged."""
    generators: tuple[GeneratorConfig, ...]
    """Who writes candidates; names must differ."""
    generation: GenerationConfig = GenerationConfig()
    """How they are drawn."""
    pairs: PairsConfig = PairsConfig()
    """What the adapters learn from."""
    scorer: ScorerConfig = ScorerConfig()
    """Encoder and adapters."""
    training: TrainingConfig = TrainingConfig()
    """How they are trained."""
    triage: TriageConfig = TriageConfig()
    """Accept, regenerate or abstain."""
    calibration: CalibrationConfig = CalibrationConfig()
    """How lambda and the thresholds on sigma are chosen."""
    decision: DecisionConfig = DecisionConfig()
    """How the posterior's rule is calibrated, and what is promised."""
    evaluation: EvaluationConfig = EvaluationConfig()
    """How selectors are compared."""
    baselines: tuple[BaselineConfig, ...] = ()
    """Models of others that rank the same candidates (docs/baselines.md)."""
    confounding: ConfoundingConfig = ConfoundingConfig()
    """The style swap (docs/confounding.md)."""
    variants: tuple[VariantConfig, ...] = ()
    """Further scorers on the same candidates and labels, for `raydebm reproduce` (docs/paper.md)."""
    ray: RayConfig = RayConfig()
    """Where things run."""

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
        """Of everything between the labels and the trained adapters."""
        return self.seed if self.pairs.seed is None else self.pairs.seed

    @property
    def learns_out_of_bag(self) -> bool:
        """Whether training candidates are scored, so that the posterior learns from them too.

        Later passes are drawn for validation problems alone, so a policy of several passes is fitted on these.
        """
        has_one_pass = self.triage.max_passes == 1 or all(found.kind == "recorded" for found in self.generators)
        return self.triage.rule == "posterior" and self.decision.out_of_bag and has_one_pass

    @property
    def resolved_run_dir(self) -> str:
        return self.run_dir.replace("{name}", self.name).replace("{task}", self.task.name)
