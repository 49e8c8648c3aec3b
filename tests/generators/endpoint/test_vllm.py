import asyncio
import importlib.util
import os
import sys
import threading

import pytest

from raydebm.config import OpenAIGenerator, TransformersGenerator, VllmGenerator
from raydebm.distributed.vllm import check_servers, gpus_left, llm_settings, running_endpoints, turns
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


@pytest.fixture
def importable(monkeypatch):
    """``ray.serve.llm`` with its vLLM, of which nothing is real."""
    monkeypatch.setattr("raydebm.distributed.vllm._import_serve_llm", lambda config: None)


def test_server_that_needs_more_gpus_than_there_are_is_refused(importable):
    """3 replicas of 2 x 4 GPUs; the engine's own argument replaces the 2 of the recipe."""
    config = VllmGenerator(
        name="v",
        model="m",
        replicas=3,
        tensor_parallel=2,
        pipeline_parallel=2,
        engine_kwargs={"pipeline_parallel_size": 4},
    )
    message = r"'v' needs 24 GPUs \(3 replicas x 2 tensor_parallel x 4 pipeline_parallel\).* has 23; .*`url`"
    with pytest.raises(ResourceError, match=message):
        check_servers([VllmGenerator(name="u", model="m"), config], num_gpus=23)
    assert llm_settings(config)["deployment_config"]["num_replicas"] == 3


@pytest.mark.parametrize(
    ("settings", "num_gpus"),
    [
        pytest.param({}, 2, id="all that there are"),
        pytest.param({"python": sys.executable}, 0, id="it runs on CPUs"),
        pytest.param({"python": sys.executable}, 1, id="it is a process"),
        pytest.param({"url": "http://host:8000"}, 1, id="it runs elsewhere"),
    ],
)
def test_server_that_there_is_room_for_is_not_refused(importable, settings, num_gpus):
    check_servers([VllmGenerator(name="v", model="m", tensor_parallel=2, **settings)], num_gpus=num_gpus)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"replicas": 2, "python": sys.executable}, "asks for 2 replicas"),
        ({"python": "no-such-python"}, "'no-such-python' is no program"),
    ],
)
@pytest.mark.parametrize("num_gpus", [0, 1])
def test_process_that_cannot_be_started_is_refused_before(settings, message, num_gpus):
    with pytest.raises(ResourceError, match=message):
        check_servers([VllmGenerator(name="v", model="m", **settings)], num_gpus=num_gpus)


@pytest.mark.skipif(importlib.util.find_spec("vllm") is not None, reason="vllm is installed")
def test_server_of_the_cluster_without_vllm_is_refused_before():
    with pytest.raises(ResourceError, match=r"ray\.serve\.llm cannot be imported.*raydebm\[vllm\].*`python`.*`url`"):
        check_servers([VllmGenerator(name="v", model="m")], num_gpus=1)


def test_processes_have_turns_of_their_own_after_the_servers_of_the_cluster():
    endpoint, process, *servers = (
        OpenAIGenerator(name="o", model="m"),
        VllmGenerator(name="p", model="m", python="vllm/bin/python"),
        VllmGenerator(name="v", model="m"),
        VllmGenerator(name="w", model="m"),
    )
    groups = turns([endpoint, process, *servers], num_gpus=2)
    assert groups == [(endpoint, *servers), (process,)]


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


def test_servers_that_find_no_free_gpu_are_given_up_in_time(serve, monkeypatch):
    """Serve waits for ever where another application holds the GPUs."""
    module, done = serve
    monkeypatch.setattr(module, "run", lambda app, **options: threading.Event().wait())

    with (
        pytest.raises(ResourceError, match=r"not come up within 0\.2 s \(startup_timeout_s\).*`ray status`"),
        running_endpoints([VllmGenerator(name="v", model="m", startup_timeout_s=0.2)], num_gpus=1),
    ):
        pass
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


def server(name, gpus=1, **settings):
    return VllmGenerator(name=name, model="m", tensor_parallel=gpus, **settings)


def names_by_turn(configs, *, num_gpus):
    return ["".join(config.name for config in group) for group in turns(configs, num_gpus=num_gpus)]


@pytest.mark.parametrize(
    ("gpus", "num_gpus", "expected"),
    [
        pytest.param({"a": 1, "b": 1, "c": 1}, 3, ["abc"], id="all fit"),
        pytest.param({"a": 1, "b": 1, "c": 1}, 1, ["a", "b", "c"], id="one at a time"),
        pytest.param({"a": 1, "b": 1, "c": 1}, 2, ["ab", "c"], id="two, and what is left"),
        pytest.param({"a": 1, "b": 2, "c": 1}, 2, ["a", "b", "c"], id="the last is not moved to the first"),
        pytest.param({"a": 1, "b": 4, "c": 1}, 2, ["a", "b", "c"], id="one is too large: who starts it refuses it"),
        pytest.param({"a": 1, "b": 1}, 0, ["a", "b"], id="without GPUs"),
    ],
)
def test_servers_share_the_gpus_as_long_as_these_are_enough(gpus, num_gpus, expected):
    assert names_by_turn([server(name, need) for name, need in gpus.items()], num_gpus=num_gpus) == expected


def test_every_replica_counts_for_a_turn():
    """2 replicas of one GPU, then one: 3 of 2."""
    assert names_by_turn([server("a", replicas=2), server("b")], num_gpus=2) == ["a", "b"]


def test_servers_that_run_already_take_no_turn():
    configs = [server("a", 2), server("u", 8, url="http://host:8000"), server("b", 2)]
    assert names_by_turn(configs, num_gpus=2) == ["au", "b"]


@pytest.mark.parametrize(
    ("num_gpus", "expected"), [(0, ["o", "a", "b"]), (1, ["oa", "b"]), (2, ["oab"])], ids=lambda value: f"{value}"
)
def test_endpoints_are_asked_with_the_first_servers_on_gpus(num_gpus, expected):
    configs = [OpenAIGenerator(name="o", model="m"), server("a"), server("b")]
    assert names_by_turn(configs, num_gpus=num_gpus) == expected


@pytest.mark.parametrize(
    ("device", "num_gpus", "expected"),
    [
        pytest.param("auto", 2, ["ol", "ab"], id="both servers take all GPUs"),
        pytest.param("cuda", 2, ["ol", "ab"], id="it asks for a GPU"),
        pytest.param("cuda:0", 1, ["ol", "a", "b"], id="the first server takes all"),
        pytest.param("auto", 3, ["aolb"], id="one is left"),
        pytest.param("cuda", 3, ["aolb"], id="one is left, and it asks for it"),
        pytest.param("cpu", 2, ["aolb"], id="it wants none"),
        pytest.param("auto", 0, ["ol", "a", "b"], id="there are none"),
    ],
)
def test_local_model_comes_first_where_servers_would_leave_it_no_gpu(device, num_gpus, expected):
    local = TransformersGenerator(name="l", model="m", device=device)
    configs = [server("a"), OpenAIGenerator(name="o", model="m"), local, server("b")]
    assert names_by_turn(configs, num_gpus=num_gpus) == expected


@pytest.mark.parametrize(
    ("settings", "num_gpus", "left"),
    [
        pytest.param({}, 3, 1, id="one of three"),
        pytest.param({}, 2, 0, id="none of two"),
        pytest.param({"url": "http://host:8000"}, 3, 3, id="a server that runs already is not of this cluster"),
        pytest.param({}, 0, 0, id="none to begin with"),
    ],
)
def test_local_models_get_the_gpus_that_servers_leave(settings, num_gpus, left):
    configs = [server("v", 2, **settings), TransformersGenerator(name="l", model="m")]
    assert gpus_left(configs, num_gpus=num_gpus) == left


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
