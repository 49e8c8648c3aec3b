"""A finished run whose models are tiny and random, so that real parts of a service start in seconds."""

from hand_written_run import PUZZLE, RIGHT, WRONG

from raydebm.config import parse_recipe
from raydebm.decision.feedback import feedback_messages
from raydebm.decision.policy import Policy
from raydebm.decision.sampling.checks import check_candidate
from raydebm.generators.requests import TokenUsage, answered
from raydebm.records import GenerationRequest, Sampling, ScoredCandidate
from raydebm.run.directory import RunDir
from raydebm.run.tables import CANDIDATES
from raydebm.tasks import get_task


def tiny_tokenizer():
    """Byte-level, so that it reads any text; with a chat template for the causal model."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    special = ["[PAD]", "[CLS]", "[SEP]"]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: index for index, token in enumerate([*special, *alphabet])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]", eos_token="[SEP]"
    )
    fast.chat_template = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}"
    return fast


def make_models(folder):
    """A tiny random encoder of the ModernBERT architecture and a tiny random Llama; returns their folders."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM, ModernBertConfig, ModernBertModel

    tokenizer = tiny_tokenizer()
    size = {
        "vocab_size": len(tokenizer),
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 48,
        "max_position_embeddings": 2048,
        "initializer_range": 0.2,
    }
    ids = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    with torch.random.fork_rng():
        torch.manual_seed(3)
        encoder = ModernBertModel(ModernBertConfig(**size, **ids, cls_token_id=1, sep_token_id=2))
        babbler = LlamaForCausalLM(LlamaConfig(**size, **ids, num_key_value_heads=2))
    for name, model in (("encoder", encoder), ("babbler", babbler)):
        model.save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
    return folder / "encoder", folder / "babbler"


def make_ensemble(folder, encoder):
    """Two adapters, trained for one epoch on four problems by the scorer's own code."""
    from raydebm.config import PAPER_ADAPTERS
    from raydebm.scorer.ensemble import write_ensemble
    from raydebm.scorer.model.backbone import load_backbone
    from raydebm.scorer.pairs import TrainingGroup
    from raydebm.scorer.training.adapter import train_adapter
    from raydebm.scorer.training.schedule import AdapterData
    from raydebm.scorer.training.settings import TrainingSettings

    groups = [
        TrainingGroup(problem_id=f"p{index}", prompt=f"{PUZZLE} {index}", texts=(RIGHT, WRONG), pairs=((0, 1),))
        for index in range(4)
    ]
    backbone = load_backbone(str(encoder), device="cpu")
    settings = TrainingSettings(max_length=512, batch_size=4, patience=1, learning_rate=1e-2, max_epochs=1)
    trained = {
        adapter.name: train_adapter(
            adapter,
            AdapterData(train=groups[:3], validation=groups[3:]),
            backbone=backbone,
            settings=settings,
            out_dir=folder / adapter.name,
            report=lambda report: None,
        ).folder
        for adapter in PAPER_ADAPTERS[:2]
    }
    write_ensemble(folder, trained, {"name": "live"})


def recorded_passes(task, problem, generator, first, second):
    """What a recorded generator says in pass 1, and in pass 2 after the feedback about its first text."""

    def said(texts, messages, pass_index):
        request = {"task": task.name, "problem_id": problem.problem_id, "generator": generator, "messages": messages}
        return [
            answered(
                GenerationRequest(**request, sampling=Sampling(), seed=0, pass_index=pass_index, sample_index=index),
                text,
                usage=TokenUsage(completion_tokens=5),
            )
            for index, text in enumerate(texts)
        ]

    answers = said(first, task.messages(problem), 1)
    best = ScoredCandidate(candidate=answers[0], report=check_candidate(task, problem, answers[0]), energies=None)
    return answers + said(second, feedback_messages(task, problem, best), 2)


def make_run(folder, encoder, babbler):
    """A recorded generator that is wrong in pass 1 and right in pass 2, a random Llama, and an ensemble.

    Args:
        folder: gets the run directory ``run``.
        encoder, babbler: what ``make_models`` returns.

    Returns:
        The run directory's path.
    """
    run = RunDir(str(folder / "run"))
    make_ensemble(folder / "run" / "scorer", encoder)
    task = get_task("knights_knaves")
    problem = task.problem_from_text(PUZZLE)
    recorded = recorded_passes(
        task, problem, "wrong-then-right", *([f"{text} #({index})" for index in range(2)] for text in (WRONG, RIGHT))
    )
    pool = folder / "run" / "pool.parquet"
    run.write_records(CANDIDATES, recorded, "pool.parquet")
    live_recipe = {
        "name": "live",
        "seed": 7,
        "task": {"name": "knights_knaves"},
        "generators": [
            {"kind": "recorded", "name": "recorded", "pool": str(pool), "model": "wrong-then-right"},
            {"kind": "transformers", "name": "babbler", "model": str(babbler), "num_samples": 1, "max_tokens": 8},
        ],
        "generation": {"num_samples": 2, "max_tokens": 64},
        "scorer": {"backbone": str(encoder)},
        "decision": {"num_regenerate": 2},
    }
    run.write_json(parse_recipe(live_recipe).model_dump(mode="json", by_alias=True), "recipe.json")
    # Random adapters disagree by any amount; these thresholds let constraints alone decide.
    run.write_json(Policy(theta_sigma=1e3, theta_abstain=1e4, num_regenerate=2).to_json(), "calibration", "policy.json")
    return run.root
