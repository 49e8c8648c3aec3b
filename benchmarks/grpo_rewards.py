"""GRPO on a tiny policy with the service's rewards: does the policy get better, or better at pleasing the verifier?

    pip install -c constraints.txt trl        # brings datasets; needed by this benchmark alone
    raydebm demo                              # the ensemble and the posterior that pay the rewards: runs/demo
    python benchmarks/grpo_rewards.py runs/demo --rewards energy energy_sigma --seeds 0 1 --out grpo.jsonl
    python benchmarks/grpo_figure.py grpo.jsonl --figure grpo.svg

One of the embedded language models is trained by TRL's GRPOTrainer on Knights & Knaves puzzles. Its reward function is
``raydebm_client.rewards.grpo_reward``. With ``--url`` that asks a running service (``raydebm serve``); without,
the same routes answer in this process. Nothing holds the policy near its start (beta 0), so that over-optimisation has
room.

Knights & Knaves has an exact constraint, and against a proof no reward can be hacked. So the rewards are (SETTINGS):

    energy               -mu: lambda 0, so that constraints cost nothing; a text without an answer is worth the floor
    energy_sigma         -mu - sigma_weight * sigma
    log_odds             log-odds by a posterior that is fitted without the constraint's proofs and penalties
    log_odds_sigma       the same - sigma_weight * sigma
    log_odds_exact       log-odds with the proofs: 10 for a right answer, -10 for a wrong one; the control

Every ``--eval-every`` steps the policy answers held-out puzzles (other logic forms than those trained on), sampled at
temperature 1 with the same random numbers each time: share of right answers by the task's checker, mean reward, mu and
sigma, and KL(policy || start) in nats per text, estimated from these texts. One JSON object a line goes to ``--out``.
"""

import argparse
import copy
import json
import math
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from grpo_service import TASK, Service, local_service
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from raydebm.embedded import GENERATORS, embedded_path
from raydebm.generators.decoding import DecodeRow, decode
from raydebm.identity import seed_for
from raydebm.records import Gold, Problem, Verdict
from raydebm.tasks.knights_knaves import KnightsKnaves
from raydebm_client.calls import RewardSettings, reward_groups, rewards_call
from raydebm_client.rewards import grpo_reward

SETTINGS: dict[str, RewardSettings] = {
    "energy": {"reward": "energy", "lambda_": 0.0},
    "energy_sigma": {"reward": "energy", "lambda_": 0.0, "sigma_weight": 1.0},
    "log_odds": {"reward": "log_odds"},
    "log_odds_sigma": {"reward": "log_odds", "sigma_weight": 1.0},
    "log_odds_exact": {"reward": "log_odds"},
}
WITHOUT_PROOFS = ("log_odds", "log_odds_sigma")
"""Rewards for which the task's constraints are taken away; a service cannot be asked to."""
HELD_OUT_SEED = 78


def puzzles(split: str, *, sizes: str, count: int, seed: int) -> list[tuple[Problem, Gold]]:
    return list(KnightsKnaves().load(split, source=f"generate:{sizes}", limit=count, seed=seed))


@dataclass(frozen=True, kw_only=True)
class HeldOut:
    """Held-out puzzles, and the policy before training."""

    pairs: Sequence[tuple[Problem, Gold]]
    tokenizer: Any
    start: Any
    service: Service
    settings: RewardSettings
    max_tokens: int
    samples: int

    def measure(self, model: Any) -> dict[str, Any]:
        """Accuracy, reward and KL of texts sampled from the model; the random numbers are the same each time."""
        pairs = [pair for pair in self.pairs for _ in range(self.samples)]
        prompts = [self._prompt_ids(problem) for problem, _ in pairs]
        rows = [
            DecodeRow(
                prompt_ids=prompt,
                seed=seed_for("grpo", "held-out", place),
                temperature=1.0,
                top_p=1.0,
                max_new_tokens=self.max_tokens,
            )
            for place, prompt in enumerate(prompts)
        ]
        eos, pad = self.tokenizer.eos_token_id, self.tokenizer.pad_token_id
        was_training = model.training
        model.eval()
        decoded = decode(model, rows, eos_ids=(eos,), pad_id=pad)
        tokens = [row.token_ids + [eos] * (row.finish_reason == "stop") for row in decoded]
        log_ratio = self._log_ratio(model, prompts, tokens)
        model.train(was_training)
        texts = [self.tokenizer.decode(row.token_ids, skip_special_tokens=True) for row in decoded]
        return {**self._judged(pairs, texts), "kl": log_ratio, "tokens": statistics.fmean(map(len, tokens))}

    def _prompt_ids(self, problem: Problem) -> tuple[int, ...]:
        chat = [{"role": "user", "content": problem.prompt}]
        ids = self.tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=True, return_dict=False)
        return tuple(ids)

    @torch.no_grad()
    def _log_ratio(self, model: Any, prompts: Sequence[tuple[int, ...]], texts: Sequence[list[int]]) -> float:
        """Mean over texts of log policy(text) - log start(text), in nats: unbiased for KL(policy || start)."""
        ids = [[*prompt, *text] for prompt, text in zip(prompts, texts, strict=True)]
        width = max(map(len, ids))
        tokens = torch.tensor([row + [self.tokenizer.pad_token_id] * (width - len(row)) for row in ids])
        place = torch.arange(1, width)
        first, end = torch.tensor([len(prompt) for prompt in prompts]), torch.tensor([len(row) for row in ids])
        is_text = (place >= first[:, None]) & (place < end[:, None])
        ratio = _log_probabilities(model, tokens) - _log_probabilities(self.start, tokens)
        return float((ratio * is_text).sum() / len(ids))

    def _judged(self, pairs: Sequence[tuple[Problem, Gold]], texts: Sequence[str]) -> dict[str, Any]:
        task = KnightsKnaves()
        right = [
            task.judge(problem, gold, text).verdict is Verdict.CORRECT
            for (problem, gold), text in zip(pairs, texts, strict=True)
        ]
        answered = [task.parse(problem, text) is not None for (problem, _), text in zip(pairs, texts, strict=True)]
        rewarded = self._rewarded([problem.prompt for problem, _ in pairs], texts)
        return {
            "accuracy": statistics.fmean(right),
            "right": [sum(right[start : start + self.samples]) for start in range(0, len(right), self.samples)],
            "answered": statistics.fmean(answered),
            "reward": statistics.fmean(rewarded["rewards"]),
            **{name: _mean_where(rewarded["answered"], rewarded[name]) for name in ("mu", "sigma")},
        }

    def _rewarded(self, prompts: Sequence[str], texts: Sequence[str]) -> dict[str, list[float]]:
        """Rewards and logs of ``/get_reward``, in the order of its requests: a prompt's texts stay together."""
        columns: dict[str, list[float]] = {"rewards": [], "answered": [], "mu": [], "sigma": []}
        for places in reward_groups(prompts):
            call = rewards_call(prompts, texts, places, self.settings)
            answer = (
                self.service.http.post(call.path, params=dict(call.query), json=call.body).raise_for_status().json()
            )
            columns["rewards"] += answer["rewards"]
            for name in ("answered", "mu", "sigma"):
                columns[name] += answer["extra_logs"][name]
        return columns


def _mean_where(flags: Sequence[float], values: Sequence[float]) -> float:
    """Mean of the values whose flag is 1; NaN where none is."""
    return statistics.fmean([value for flag, value in zip(flags, values, strict=True) if flag] or [math.nan])


def _log_probabilities(model: Any, tokens: torch.Tensor) -> torch.Tensor:
    """Of each token but the first, given those before it; rows are padded at their end, which earlier tokens do not
    see."""
    logits = model(tokens).logits[:, :-1].float()
    return torch.log_softmax(logits, dim=-1).gather(2, tokens[:, 1:, None]).squeeze(2)


class Measuring(TrainerCallback):
    """Measures the policy on held-out puzzles before training and every so many steps."""

    def __init__(self, held_out: HeldOut, *, every: int, facts: dict[str, Any], out: Path) -> None:
        self._held_out, self._every, self._facts, self._out = held_out, every, facts, out
        self._started = time.monotonic()

    def on_train_begin(self, args: Any, state: Any, control: Any, **parts: Any) -> None:
        self._measure(0, parts["model"])

    def on_step_end(self, args: Any, state: Any, control: Any, **parts: Any) -> None:
        if state.global_step % self._every == 0:
            self._measure(state.global_step, parts["model"])

    def _measure(self, step: int, model: Any) -> None:
        started = time.monotonic()
        measures = self._held_out.measure(model)
        row = {
            **self._facts,
            "step": step,
            **{name: round(value, 5) if isinstance(value, float) else value for name, value in measures.items()},
            "seconds": round(started - self._started, 1),
            "measuring_s": round(time.monotonic() - started, 1),
        }
        with self._out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        print(json.dumps(row), flush=True)


def train(given: argparse.Namespace, reward: str, seed: int, service: Service) -> None:
    """One training; its measurements go to ``--out``."""
    folder = embedded_path(given.policy)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    settings = SETTINGS[reward] | {"task": TASK, "floor": given.floor}
    if "sigma_weight" in settings:
        settings["sigma_weight"] = given.sigma_weight
    held_out = HeldOut(
        pairs=puzzles("test", sizes=given.sizes, count=given.held_out, seed=HELD_OUT_SEED),
        tokenizer=tokenizer,
        start=copy.deepcopy(model).eval(),
        service=service,
        settings=settings,
        max_tokens=given.max_tokens,
        samples=given.samples,
    )
    prompts = puzzles("train", sizes=given.sizes, count=given.steps * given.batch // given.group, seed=1000 + seed)
    with tempfile.TemporaryDirectory() as scratch:
        trainer = GRPOTrainer(
            model=model,
            processing_class=tokenizer,
            reward_funcs=grpo_reward(service.client, **settings),
            train_dataset=Dataset.from_list(
                [{"prompt": [{"role": "user", "content": problem.prompt}]} for problem, _ in prompts]
            ),
            args=trainer_config(given, seed, scratch),
            callbacks=[Measuring(held_out, every=given.eval_every, facts=facts_of(given, reward, seed), out=given.out)],
        )
        trainer.train()


def trainer_config(given: argparse.Namespace, seed: int, scratch: str) -> GRPOConfig:
    return GRPOConfig(
        output_dir=scratch,
        seed=seed,
        max_steps=given.steps,
        per_device_train_batch_size=given.batch,
        gradient_accumulation_steps=1,
        num_generations=given.group,
        max_completion_length=given.max_tokens,
        learning_rate=given.learning_rate,
        lr_scheduler_type="constant",
        max_grad_norm=1.0,
        beta=0.0,
        temperature=1.0,
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        save_strategy="no",
        logging_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )


def facts_of(given: argparse.Namespace, reward: str, seed: int) -> dict[str, Any]:
    """What a line of the output says about its training."""
    names = ("policy", "sizes", "sigma_weight", "floor", "learning_rate", "batch", "group", "held_out", "samples")
    return {
        "reward_function": reward,
        "seed": seed,
        "service": given.url or "in process",
        **{name: getattr(given, name) for name in names},
        "versions": {name: version(name) for name in ("raydebm", "trl", "transformers", "torch")},
    }


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run_dir", help="of a finished run of Knights & Knaves, such as that of `raydebm demo`")
    parser.add_argument("--rewards", nargs="+", choices=SETTINGS, default=[*SETTINGS])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1])
    parser.add_argument("--policy", choices=GENERATORS, default="kk-cy")
    parser.add_argument("--sizes", default="2-3", help="people of a puzzle")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--batch", type=int, default=24, help="completions of a step")
    parser.add_argument("--group", type=int, default=8, help="completions of a prompt")
    parser.add_argument("--learning-rate", type=float, default=1e-4)
    parser.add_argument("--max-tokens", type=int, default=96)
    parser.add_argument("--sigma-weight", type=float, default=1.0)
    parser.add_argument("--floor", type=float, default=-10.0)
    parser.add_argument("--eval-every", type=int, default=10)
    parser.add_argument("--held-out", type=int, default=48, help="held-out puzzles")
    parser.add_argument("--samples", type=int, default=2, help="texts of each")
    parser.add_argument("--url", help="of a running service; left out: its routes answer in this process")
    parser.add_argument("--out", type=Path, required=True)
    return parser.parse_args()


def main() -> None:
    given = arguments()
    torch.set_num_threads(1)
    for seed in given.seeds:
        for reward in given.rewards:
            if given.url and reward in WITHOUT_PROOFS:
                raise SystemExit(f"{reward} needs a service without the task's constraints; leave --url out")
            proofs = reward not in WITHOUT_PROOFS
            service = Service.at(given.url) if given.url else local_service(given.run_dir, proofs=proofs)
            train(given, reward, seed, service)


if __name__ == "__main__":
    main()
