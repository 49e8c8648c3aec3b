"""``grpo_reward`` inside TRL's own trainer, one step on the smallest embedded model."""

import json

import httpx
import pytest

from raydebm.embedded import embedded_path
from raydebm_client import Raydebm
from raydebm_client.rewards import grpo_reward

trl = pytest.importorskip("trl", reason="TRL is no dependency: pip install trl")
PUZZLE = 'You meet 2 inhabitants: Ava, and Zoey. Ava said, "Zoey is a knave." So who is a knight and who is a knave?'


@pytest.mark.slow
def test_the_trainer_sends_a_group_together_and_logs_its_mean_reward(tmp_path):
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer

    asked = []

    def answer(request):
        asked.append(json.loads(request.content))
        return httpx.Response(200, json={"rewards": [float(place) for place in range(len(asked[-1]["query"]))]})

    folder = embedded_path("kk-dee")
    trainer = trl.GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(folder),
        processing_class=AutoTokenizer.from_pretrained(folder),
        reward_funcs=grpo_reward(Raydebm("http://test", transport=httpx.MockTransport(answer))),
        train_dataset=Dataset.from_list([{"prompt": [{"role": "user", "content": PUZZLE}]}]),
        args=trl.GRPOConfig(
            output_dir=str(tmp_path),
            max_steps=1,
            per_device_train_batch_size=4,
            num_generations=4,
            max_completion_length=8,
            use_cpu=True,
            bf16=False,
            save_strategy="no",
            logging_steps=1,
            report_to="none",
        ),
    )
    trainer.train()

    assert [(request["prompts"], len(request["query"])) for request in asked] == [([PUZZLE] * 4, 4)]
    assert trainer.state.log_history[0]["rewards/raydebm/mean"] == 1.5  # of 0, 1, 2, 3
