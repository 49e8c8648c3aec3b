import subprocess
import sys

import pytest

from raydebm.config import JudgeBaseline, parse_recipe
from raydebm.errors import ConfigError

RECIPE = {
    "name": "with-baselines",
    "task": {"name": "gsm8k"},
    "generators": [{"kind": "openai", "name": "opus", "model": "x/opus", "num_samples": 0}],
}


def recipe(*baselines):
    return parse_recipe(RECIPE | {"baselines": list(baselines)})


def test_every_kind_is_told_by_its_kind():
    kinds = recipe(
        {"kind": "reward_model", "name": "skywork", "model": "Skywork/Skywork-Reward-Llama-3.1-8B-v0.2"},
        {"kind": "process_reward", "name": "shepherd", "model": "peiyi9979/math-shepherd-mistral-7b-prm"},
        {"kind": "judge", "name": "judge", "generator": {"kind": "openai", "name": "judge-model", "model": "x/sonnet"}},
        {"kind": "eorm", "name": "eorm"},
        {"kind": "reader", "name": "reader", "model": "Qwen/Qwen2.5-0.5B-Instruct"},
    ).baselines

    assert [baseline.kind for baseline in kinds] == [
        "reward_model", "process_reward", "judge", "eorm", "reader",
    ]  # fmt: skip
    assert isinstance(kinds[2], JudgeBaseline)
    assert kinds[2].generator.model == "x/sonnet"


@pytest.mark.parametrize(
    ("baselines", "message"),
    [
        ([{"kind": "eorm", "name": "x"}, {"kind": "eorm", "name": "x"}], "names must differ"),
        ([{"kind": "oracle", "name": "x"}], "baselines"),
        ([{"kind": "reward_model", "name": "x"}], "model: Field required"),
        (
            [{"kind": "judge", "name": "x", "generator": {"kind": "vllm", "name": "v", "model": "m"}}],
            "baselines.0.judge.generator: .*'v' needs the `url` of a running vLLM server",
        ),
    ],
    ids=["same-name", "unknown-kind", "no-model", "no-server"],
)
def test_a_wrong_entry_is_refused_with_its_place(baselines, message):
    with pytest.raises(ConfigError, match=message):
        recipe(*baselines)


def test_a_vllm_server_that_runs_can_judge():
    server = {"kind": "vllm", "name": "v", "model": "m", "url": "http://host:8000"}

    assert recipe({"kind": "judge", "name": "x", "generator": server}).baselines[0].generator.url == server["url"]


@pytest.mark.parametrize(
    "module",
    [
        "raydebm.evaluation.baselines",
        "raydebm.evaluation.baselines.judge",
        "raydebm.evaluation.confounding",
        "raydebm.evaluation.confounding.screen",
    ],
)
def test_light_imports_load_neither_torch_nor_ray(module):
    code = f"import sys, {module}; print(' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in done.stdout.split()}

    assert not loaded & {"torch", "transformers", "peft", "ray", "vllm"}
