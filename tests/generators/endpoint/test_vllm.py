import asyncio
import os

import pytest

from raydebm.config import OpenAIGenerator, TransformersGenerator, VllmGenerator
from raydebm.distributed.vllm import beside_servers, llm_settings, running_endpoints
from raydebm.errors import ResourceError
from raydebm.generators import build_generator
from raydebm.generators.endpoint.vllm_server import endpoint_of
from raydebm.generators.protocol import collect
from raydebm.generators.requests import requests_for
from raydebm.records import Problem, Sampling


@pytest.mark.parametrize("url", ["http://host:8000", "http://host:8000/", "http://host:8000/v1"])
def test_server_is_an_endpoint_without_key_or_price(url):
    endpoint = endpoint_of(VllmGenerator(name="v", model="m", url=url, max_in_flight=7, timeout_s=9))
    assert endpoint.base_url == "http://host:8000/v1"
    assert (endpoint.api_key_env, endpoint.usd_per_million_completion_tokens) == (None, 0.0)
    assert (endpoint.max_in_flight, endpoint.timeout_s) == (7, 9)


def test_further_servers_are_asked_like_the_first():
    config = VllmGenerator(name="v", model="m", url="http://one:8000", replica_urls=("http://two:8000/",))
    assert endpoint_of(config).replica_urls == ("http://two:8000/v1",)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"replica_urls": ("http://two",)}, "replica_urls are"),
        ({"url": "http://one", "replicas": 2}, "`replicas` are"),
        ({"url": "http://one", "replica_urls": ("http://two", "http://two")}, "'http://two' stands twice"),
    ],
)
def test_replicas_that_contradict_each_other_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        VllmGenerator(name="v", model="m", **settings)


def test_gpus_of_all_replicas_are_counted():
    """3 replicas of 2 x 4 GPUs; the engine's own argument replaces the 2 of the recipe."""
    config = VllmGenerator(
        name="v",
        model="m",
        replicas=3,
        tensor_parallel=2,
        pipeline_parallel=2,
        engine_kwargs={"pipeline_parallel_size": 4},
    )
    with (
        pytest.raises(ResourceError, match="need 24 GPUs and the cluster has 23"),
        running_endpoints([config], num_gpus=23),
    ):
        pass
    assert llm_settings(config)["deployment_config"]["num_replicas"] == 3


def test_without_a_gpu_there_is_one_server():
    config = VllmGenerator(name="v", model="m", replicas=2)
    with pytest.raises(ResourceError, match="asks for 2 replicas"), running_endpoints([config], num_gpus=0):
        pass


def test_generator_without_a_server_says_how_to_get_one():
    with pytest.raises(ResourceError, match=r"generator 'v': no vLLM server.*`url`.*raydebm\[vllm\]"):
        build_generator(VllmGenerator(name="v", model="m"))


def test_running_server_is_left_alone():
    configs = (VllmGenerator(name="v", model="m", url="http://host:8000"),)
    with running_endpoints(configs, num_gpus=0) as reachable:
        assert reachable == configs


@pytest.fixture
def serve(monkeypatch):
    """Ray Serve and vLLM of which nothing is real; says what became of the servers."""
    from ray import serve

    done = []
    monkeypatch.setattr("raydebm.distributed.vllm._app", lambda wanted: "app")
    monkeypatch.setattr("ray.util.get_node_ip_address", lambda: "host")
    monkeypatch.setattr(serve, "start", lambda **options: done.append("start"))
    monkeypatch.setattr(serve, "run", lambda app, *, name, route_prefix: done.append(f"run {name}"))
    monkeypatch.setattr(serve, "delete", lambda name: done.append(f"delete {name}"))
    return serve, done


def test_started_servers_end_with_the_block(serve):
    _, done = serve
    with running_endpoints([VllmGenerator(name="v", model="m")], num_gpus=1) as (config,):
        name = config.url.removeprefix("http://host:8000/")
        assert done == ["start", f"run {name}"]
    assert done[2:] == [f"delete {name}"]


def test_two_runs_on_one_cluster_have_servers_of_their_own(serve):
    config = VllmGenerator(name="v", model="m")
    with running_endpoints([config], num_gpus=1) as (one,), running_endpoints([config], num_gpus=1) as (other,):
        assert one.url != other.url


@pytest.mark.parametrize("failure", [RuntimeError("DEPLOY_FAILED"), TimeoutError("late"), KeyboardInterrupt()])
def test_servers_that_do_not_come_up_are_ended_and_hold_no_gpu(serve, monkeypatch, failure):
    module, done = serve

    def fail(app, **options):
        raise failure

    monkeypatch.setattr(module, "run", fail)
    expected = KeyboardInterrupt if isinstance(failure, KeyboardInterrupt) else ResourceError
    with pytest.raises(expected), running_endpoints([VllmGenerator(name="v", model="m")], num_gpus=1):
        pass
    assert done[0] == "start"
    assert done[1].startswith("delete raydebm-vllm-")


def test_servers_that_cannot_be_ended_hide_no_other_error(serve, monkeypatch, caplog):
    module, _ = serve

    def fail(*arguments, **options):
        raise TimeoutError("weren't deleted after 60s")

    monkeypatch.setattr(module, "delete", fail)
    with (
        pytest.raises(ValueError, match="of the block"),
        running_endpoints([VllmGenerator(name="v", model="m")], num_gpus=1),
    ):
        raise ValueError("of the block")
    assert "weren't deleted" in caplog.text


def beside(*, tensor_parallel=1, url=None, device="auto"):
    return (
        OpenAIGenerator(name="o", model="m"),
        VllmGenerator(name="v", model="m", tensor_parallel=tensor_parallel, url=url),
        TransformersGenerator(name="l", model="m", device=device),
    )


@pytest.mark.parametrize(
    ("server", "num_gpus", "left"),
    [
        pytest.param({}, 3, 2, id="some are left"),
        pytest.param({"url": "http://host:8000"}, 3, 3, id="a server that runs already is not of this cluster"),
        pytest.param({"url": "http://host:8000"}, 0, 0, id="none to begin with: whoever asks for one finds out"),
    ],
)
@pytest.mark.parametrize("device", ["auto", "cpu", "cuda"])
def test_local_models_get_the_gpus_that_servers_leave(server, num_gpus, left, device):
    configs = beside(device=device, **server)
    assert beside_servers(configs, num_gpus=num_gpus) == (configs, left)


@pytest.mark.parametrize("num_gpus", [1, 2])
def test_local_models_go_to_the_cpu_where_servers_leave_no_gpu(num_gpus):
    configs, left = beside_servers(beside(tensor_parallel=2), num_gpus=num_gpus)
    assert [config.device for config in configs if config.kind == "transformers"] == ["cpu"]
    assert left == 0


@pytest.mark.parametrize("device", ["cuda", "cuda:0"])
def test_local_model_that_asks_for_a_gpu_beside_servers_that_take_all_is_refused(device):
    with pytest.raises(ResourceError, match=f"'l' asks for device '{device}'.*all of the cluster's 1 GPUs.*`url`"):
        beside_servers(beside(device=device), num_gpus=1)


def test_settings_of_a_started_server():
    config = VllmGenerator(
        name="v", model="org/m", tensor_parallel=2, accelerator_type="H100", engine_kwargs={"max_model_len": 512}
    )
    assert llm_settings(config) == {
        "model_loading_config": {"model_id": "org/m", "model_source": "org/m"},
        "deployment_config": {"num_replicas": 1, "max_ongoing_requests": 256},
        "engine_kwargs": {"tensor_parallel_size": 2, "pipeline_parallel_size": 1, "max_model_len": 512},
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
        samples=range(4),
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
