"""vLLM servers, spoken to like any endpoint: on the cluster's GPUs through ``ray.serve.llm``, or as a process here.

``ray.serve.llm`` needs the extra ``raydebm[vllm]`` and is imported only when a server is to be started on GPUs.
"""

import logging
import math
import threading
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import ExitStack, contextmanager
from typing import Any

import ray
from ray.exceptions import RayError

from raydebm.config import GeneratorConfig, TransformersGenerator, VllmGenerator
from raydebm.embedded import PREFIX, embedded_path
from raydebm.errors import ResourceError
from raydebm.generators.endpoint.vllm_process import check_process, engine_arguments, vllm_process

_LOG = logging.getLogger(__name__)

APP = "raydebm-vllm-{}"
"""Each start has an application and a route of its own: several runs may use one cluster."""
PORT = 8000
"""Serve's own default: a Serve instance that already runs keeps its port."""


@contextmanager
def running_endpoints(configs: Sequence[GeneratorConfig], *, num_gpus: float) -> Iterator[tuple[GeneratorConfig, ...]]:
    """The same generators, with a ``url`` for every vLLM one. Servers that were started here end with the context.

    Raises:
        ResourceError: vLLM is not installed, or the servers do not come up.
    """
    wanted = _to_start(configs)
    on_cluster = [config for config in wanted if not _is_process(config, num_gpus)]
    started: dict[str, GeneratorConfig] = {}
    with ExitStack() as servers:
        if on_cluster:
            app, name = _app(on_cluster), APP.format(uuid.uuid4().hex[:12])
            servers.callback(_delete, name)
            limit_s = max(config.startup_timeout_s for config in on_cluster)
            place = {"url": _start(app, name, limit_s), "replicas": 1}  # all are behind one address
            started |= {config.name: config.model_copy(update=place) for config in on_cluster}
        for config in wanted:
            if config.name not in started:
                started[config.name] = servers.enter_context(_process(config))
        yield tuple(started.get(config.name, config) for config in configs)


def turns(configs: Sequence[GeneratorConfig], *, num_gpus: float) -> list[tuple[GeneratorConfig, ...]]:
    """The generators in groups that are asked one after the other.

    Servers to be started on the cluster keep their order, and share a group while the GPUs are enough for all of it.
    The other generators are asked together with the first of them, or before where these would leave no GPU to a local
    model that may use one. A server that is a process has this machine to itself: it comes last, alone.
    """
    servers = _to_start(configs)
    others = [config for config in configs if config not in servers]
    processes = [config for config in servers if _is_process(config, num_gpus)]
    first, *later = _fitting([config for config in servers if config not in processes], num_gpus) or [()]
    if gpus_left(first, num_gpus=num_gpus) or not any(map(_may_use_gpu, others)):
        groups = [tuple(config for config in configs if config in (*others, *first)), *later]
    else:
        groups = [tuple(others), first, *later]
    return [group for group in (*groups, *((config,) for config in processes)) if group]


def gpus_left(configs: Sequence[GeneratorConfig], *, num_gpus: float) -> float:
    """How many GPUs the servers that ``running_endpoints`` starts leave to local models."""
    return max(0.0, num_gpus - sum(map(_gpus_of, _to_start(configs))))


def check_servers(configs: Sequence[GeneratorConfig], *, num_gpus: float) -> None:
    """Check what can be known of the servers to be started before they are.

    Raises:
        ResourceError: one on the cluster needs more GPUs than there are, or ``ray.serve.llm`` cannot be imported; one
            that is a process has no vLLM, or several replicas.
    """
    for config in _to_start(configs):
        if _is_process(config, num_gpus):
            check_process(config)
            continue
        if (needed := _gpus_of(config)) > num_gpus:
            tensor, pipeline = _parallel_sizes(config)
            raise ResourceError(
                f"vLLM generator {config.name!r} needs {needed} GPUs ({config.replicas} replicas x {tensor} "
                f"tensor_parallel x {pipeline} pipeline_parallel) and the cluster has {num_gpus:g}; add GPU nodes, "
                "lower one of the three, or set its `url` to a vLLM server that already runs"
            )
        _import_serve_llm(config)


@contextmanager
def _process(config: VllmGenerator) -> Iterator[GeneratorConfig]:
    check_process(config)
    host = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
    with vllm_process(config, source=_source(config), host=host) as url:
        yield config.model_copy(update={"url": url})


def llm_settings(config: VllmGenerator) -> dict[str, Any]:
    """The arguments of ``ray.serve.llm.LLMConfig`` for a generator."""
    settings: dict[str, Any] = {
        "model_loading_config": {"model_id": config.model, "model_source": _source(config)},
        "deployment_config": {"num_replicas": config.replicas, "max_ongoing_requests": config.max_in_flight},
        "engine_kwargs": engine_arguments(config),
    }
    if config.accelerator_type is not None:
        settings["accelerator_type"] = config.accelerator_type
    return settings


def _parallel_sizes(config: VllmGenerator) -> tuple[int, int]:
    """GPUs over which each layer is split, and groups of so many over which the layers are divided."""
    arguments = engine_arguments(config)
    return arguments["tensor_parallel_size"], arguments["pipeline_parallel_size"]


def _source(config: VllmGenerator) -> str:
    if config.model.startswith(PREFIX):
        return str(embedded_path(config.model.removeprefix(PREFIX)))
    return config.model


def _to_start(configs: Sequence[GeneratorConfig]) -> list[VllmGenerator]:
    return [config for config in configs if isinstance(config, VllmGenerator) and config.url is None]


def _is_process(config: VllmGenerator, num_gpus: float) -> bool:
    """Whether the server is a process of this machine: without GPUs, or in an environment of its own."""
    return not num_gpus or config.python is not None


def _fitting(servers: Sequence[VllmGenerator], num_gpus: float) -> list[tuple[GeneratorConfig, ...]]:
    """Groups in the servers' order. A server for which the last group has too few GPUs left begins a new one."""
    groups: list[tuple[GeneratorConfig, ...]] = []
    for server in servers:
        if groups and _gpus_of(server) <= gpus_left(groups[-1], num_gpus=num_gpus):
            groups[-1] += (server,)
        else:
            groups.append((server,))
    return groups


def _may_use_gpu(config: GeneratorConfig) -> bool:
    return isinstance(config, TransformersGenerator) and not config.device.startswith("cpu")


def _gpus_of(config: VllmGenerator) -> int:
    return config.replicas * math.prod(_parallel_sizes(config))


def _app(wanted: Sequence[VllmGenerator]) -> Any:
    llm = _import_serve_llm(wanted[0])
    return llm.build_openai_app({"llm_configs": [llm.LLMConfig(**llm_settings(config)) for config in wanted]})


def _import_serve_llm(config: VllmGenerator) -> Any:
    try:
        import ray.serve.llm
        import vllm  # noqa: F401
    except ImportError as error:
        raise ResourceError(
            f"generator {config.name!r} wants a vLLM server to be started, and ray.serve.llm cannot be imported "
            f"({error}); install the extra raydebm[vllm], which brings the vLLM that it was made for, or name the "
            "`python` of an environment with another one, or set the generator's `url` to a server that already runs"
        ) from error
    return ray.serve.llm


def _start(app: Any, name: str, limit_s: float) -> str:
    from ray import serve  # a second of imports that other runs do without

    # Generating actors on other nodes must reach it.
    host = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
    is_up: Future[Any] = Future()

    def run() -> None:
        try:
            is_up.set_result(serve.run(app, name=name, route_prefix=f"/{name}"))
        except BaseException as error:  # noqa: BLE001 - it is raised where the result is waited for
            is_up.set_exception(error)

    try:
        serve.start(http_options={"host": host, "port": PORT})
        # Serve itself waits for as long as it takes, which is for ever where another application holds the GPUs.
        threading.Thread(target=run, daemon=True).start()
        if not wait([is_up], limit_s).done:
            raise ResourceError(
                f"the vLLM servers did not come up within {limit_s:g} s (startup_timeout_s); see logs/serve in Ray's "
                "session folder, and `ray status` for GPUs that something else holds"
            )
        is_up.result()
    except (RuntimeError, TimeoutError) as error:
        raise ResourceError(
            f"the vLLM servers did not come up: {error}; see logs/serve in Ray's session folder"
        ) from error
    return f"http://{host}:{PORT}/{name}"


def _delete(name: str) -> None:
    """End the servers, also those that do not come up: Serve would try again for ever, and hold their GPUs."""
    from ray import serve
    from ray.serve.exceptions import RayServeException

    try:
        serve.delete(name)
    except (RayServeException, RayError, TimeoutError) as error:  # what was answered counts for more
        _LOG.warning("the vLLM servers could not be ended: %s; see `serve status`", error)
