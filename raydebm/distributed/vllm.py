"""vLLM servers, spoken to like any endpoint: on the cluster's GPUs through ``ray.serve.llm``, else as a process here.

``ray.serve.llm`` needs the extra ``raydebm[vllm]`` and is imported only when a server is to be started on GPUs.
"""

import logging
import math
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import ray
from ray.exceptions import RayError

from raydebm.config import GeneratorConfig, TransformersGenerator, VllmGenerator
from raydebm.embedded import PREFIX, embedded_path
from raydebm.errors import ResourceError
from raydebm.generators.endpoint.vllm_process import vllm_process

_LOG = logging.getLogger(__name__)

APP = "raydebm-vllm-{}"
"""Each start has an application and a route of its own: several runs may use one cluster."""
PORT = 8000
"""Serve's own default: a Serve instance that already runs keeps its port."""


@contextmanager
def running_endpoints(configs: Sequence[GeneratorConfig], *, num_gpus: float) -> Iterator[tuple[GeneratorConfig, ...]]:
    """The same generators, with a ``url`` for every vLLM one. Servers that were started here end with the context.

    Raises:
        ResourceError: vLLM is not installed, the cluster has too few GPUs, or the servers do not come up.
    """
    wanted = _to_start(configs)
    if not wanted:
        yield tuple(configs)
        return
    if not num_gpus:
        with ExitStack() as servers:
            yield tuple(servers.enter_context(_on_cpu(config)) if config in wanted else config for config in configs)
        return
    _check_gpus(wanted, num_gpus)
    app, name = _app(wanted), APP.format(uuid.uuid4().hex[:12])
    try:
        url = _start(app, name)
        started = {"url": url, "replicas": 1}  # all are behind one address
        yield tuple(config.model_copy(update=started) if config in wanted else config for config in configs)
    finally:
        _delete(name)


def turns(configs: Sequence[GeneratorConfig], *, num_gpus: float) -> list[tuple[GeneratorConfig, ...]]:
    """The generators in groups that are asked together: without GPUs every server that is to be started has the
    machine's CPUs and memory to itself, so it comes after the others, alone."""
    alone = [] if num_gpus else _to_start(configs)
    together = tuple(config for config in configs if config not in alone)
    return [group for group in (together, *((config,) for config in alone)) if group]


@contextmanager
def _on_cpu(config: VllmGenerator) -> Iterator[GeneratorConfig]:
    if config.replicas > 1:
        raise ResourceError(
            f"generator {config.name!r} asks for {config.replicas} replicas, and without a GPU one server has the "
            "machine to itself; set `replicas` to 1, or `url` and `replica_urls` to servers that run elsewhere"
        )
    host = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
    with vllm_process(config, source=_source(config), host=host) as url:
        yield config.model_copy(update={"url": url})


def beside_servers(configs: Sequence[GeneratorConfig], *, num_gpus: float) -> tuple[tuple[GeneratorConfig, ...], float]:
    """The same generators, and how many GPUs the servers that ``running_endpoints`` starts leave to local models.

    Where they leave none, a local model with ``device: auto`` gets the CPU. It has to be told: Ray hides no GPU from an
    actor that asked for none.

    Raises:
        ResourceError: they leave none, and a local model asks for one.
    """
    taken = _gpus_of(_to_start(configs))
    left = max(0.0, num_gpus - taken)
    if not taken or left:
        return tuple(configs), left
    for config in configs:
        if isinstance(config, TransformersGenerator) and config.device.startswith("cuda"):
            raise ResourceError(
                f"generator {config.name!r} asks for device {config.device!r}, and the vLLM servers to be started take "
                f"all of the cluster's {num_gpus:g} GPUs; add a GPU, set its `device` to cpu, or set the vLLM "
                "generators' `url` to a server that already runs"
            )
    return tuple(
        config.model_copy(update={"device": "cpu"})
        if isinstance(config, TransformersGenerator) and config.device == "auto"
        else config
        for config in configs
    ), left


def llm_settings(config: VllmGenerator) -> dict[str, Any]:
    """The arguments of ``ray.serve.llm.LLMConfig`` for a generator."""
    settings: dict[str, Any] = {
        "model_loading_config": {"model_id": config.model, "model_source": _source(config)},
        "deployment_config": {"num_replicas": config.replicas, "max_ongoing_requests": config.max_in_flight},
        "engine_kwargs": {**_parallel_sizes(config), **config.engine_kwargs},
    }
    if config.accelerator_type is not None:
        settings["accelerator_type"] = config.accelerator_type
    return settings


def _parallel_sizes(config: VllmGenerator) -> dict[str, int]:
    return {"tensor_parallel_size": config.tensor_parallel, "pipeline_parallel_size": config.pipeline_parallel}


def _source(config: VllmGenerator) -> str:
    if config.model.startswith(PREFIX):
        return str(embedded_path(config.model.removeprefix(PREFIX)))
    return config.model


def _to_start(configs: Sequence[GeneratorConfig]) -> list[VllmGenerator]:
    return [config for config in configs if isinstance(config, VllmGenerator) and config.url is None]


def _gpus_of(wanted: Sequence[VllmGenerator]) -> int:
    return sum(config.replicas * _gpus_per_replica(config) for config in wanted)


def _gpus_per_replica(config: VllmGenerator) -> int:
    """vLLM's own arguments in ``engine_kwargs`` win over the recipe's settings."""
    return math.prod(config.engine_kwargs.get(name, size) for name, size in _parallel_sizes(config).items())


def _check_gpus(wanted: Sequence[VllmGenerator], num_gpus: float) -> None:
    needed = _gpus_of(wanted)
    if needed > num_gpus:
        names = ", ".join(config.name for config in wanted)
        raise ResourceError(
            f"vLLM generators {names} need {needed} GPUs and the cluster has {num_gpus:g}; add GPU nodes, lower "
            "replicas or the GPUs of each, or set each generator's `url` to a vLLM server that already runs"
        )


def _app(wanted: Sequence[VllmGenerator]) -> Any:
    try:
        import vllm  # noqa: F401
        from ray.serve.llm import LLMConfig, build_openai_app
    except ImportError as error:
        raise ResourceError(
            f"generator {wanted[0].name!r} wants a vLLM server to be started, and vLLM is not installed ({error}); "
            "install the extra raydebm[vllm] on the cluster, or set the generator's `url` to a server that already runs"
        ) from error
    return build_openai_app({"llm_configs": [LLMConfig(**llm_settings(config)) for config in wanted]})


def _start(app: Any, name: str) -> str:
    from ray import serve  # a second of imports that other runs do without

    # Generating actors on other nodes must reach it.
    host = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
    try:
        serve.start(http_options={"host": host, "port": PORT})
        serve.run(app, name=name, route_prefix=f"/{name}")
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
