import asyncio
import os

import pytest

from raydebm.config import VllmGenerator
from raydebm.distributed.vllm import llm_settings, running_endpoints
from raydebm.errors import ResourceError
from raydebm.generators import build_generator
from raydebm.generators.protocol import collect
from raydebm.generators.requests import requests_for
from raydebm.generators.vllm_server import endpoint_of
from raydebm.records import Problem, Sampling


@pytest.mark.parametrize("url", ["http://host:8000", "http://host:8000/", "http://host:8000/v1"])
def test_server_is_an_endpoint_without_key_or_price(url):
    endpoint = endpoint_of(VllmGenerator(name="v", model="m", url=url, max_in_flight=7, timeout_s=9))
    assert endpoint.base_url == "http://host:8000/v1"
    assert (endpoint.api_key_env, endpoint.usd_per_million_completion_tokens) == (None, 0.0)
    assert (endpoint.max_in_flight, endpoint.timeout_s) == (7, 9)


def test_generator_without_a_server_says_how_to_get_one():
    with pytest.raises(ResourceError, match=r"generator 'v': no vLLM server.*`url`.*raydebm\[vllm\]"):
        build_generator(VllmGenerator(name="v", model="m"))


def test_running_server_is_left_alone():
    configs = (VllmGenerator(name="v", model="m", url="http://host:8000"),)
    with running_endpoints(configs, num_gpus=0) as reachable:
        assert reachable == configs


def test_settings_of_a_started_server():
    config = VllmGenerator(
        name="v", model="org/m", tensor_parallel=2, accelerator_type="H100", engine_kwargs={"max_model_len": 512}
    )
    assert llm_settings(config) == {
        "model_loading_config": {"model_id": "org/m", "model_source": "org/m"},
        "deployment_config": {"num_replicas": 1, "max_ongoing_requests": 256},
        "engine_kwargs": {"tensor_parallel_size": 2, "max_model_len": 512},
        "accelerator_type": "H100",
    }


@pytest.mark.vllm
@pytest.mark.skipif("RAYDEBM_VLLM_URL" not in os.environ, reason="set RAYDEBM_VLLM_URL (and RAYDEBM_VLLM_MODEL)")
def test_real_server():
    model = os.environ.get("RAYDEBM_VLLM_MODEL", "default")
    config = VllmGenerator(name="v", model=model, url=os.environ["RAYDEBM_VLLM_URL"])
    requests = requests_for(
        Problem(task="toy", problem_id="p", prompt="?"),
        [{"role": "user", "content": "Zoey says: Oliver is a knave. Who is a knight?"}],
        generator="v",
        sampling=Sampling(max_tokens=32),
        num_samples=4,
        run_seed=0,
    )

    async def ask():
        generator = build_generator(config)
        try:
            return await collect(generator, requests)
        finally:
            await generator.aclose()

    candidates = asyncio.run(ask())
    assert [candidate.error for candidate in candidates] == [None] * 4
    assert all(0 < candidate.completion_tokens <= 32 for candidate in candidates)
    assert len({candidate.text for candidate in candidates}) > 1
