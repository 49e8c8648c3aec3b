"""vLLM servers on the cluster's GPUs, started through ``ray.serve.llm`` and spoken to like any endpoint.

``ray.serve.llm`` needs the extra ``raydebm[vllm]`` and is imported only when a server is to be started.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ray

from raydebm.config import GeneratorConfig, VllmGenerator
from raydebm.embedded import embedded_path
from raydebm.errors import ResourceError

_LOG = logging.getLogger(__name__)

APP = "raydebm-vllm"
ROUTE = "/raydebm-vllm"
PORT = 8000
"""Serve's own default: a Serve instance that already runs keeps its port."""
_EMBEDDED = "embedded:"


@contextmanager
def running_endpoints(configs: Sequence[GeneratorConfig], *, num_gpus: float) -> Iterator[tuple[GeneratorConfig, ...]]:
    """The same generators, with a ``url`` for every vLLM one. Servers that were started here end with the context.

    Raises:
        ResourceError: vLLM is not installed, the cluster has too few GPUs, or the servers do not come up.
    """
    wanted = [config for config in configs if isinstance(config, VllmGenerator) and config.url is None]
    if not wanted:
        yield tuple(configs)
        return
    _check_gpus(wanted, num_gpus)
    from ray import serve  # a second of imports that other runs do without

    url = _start(wanted)
    try:
        yield tuple(config.model_copy(update={"url": url}) if config in wanted else config for config in configs)
    finally:
        serve.delete(APP)


def llm_settings(config: VllmGenerator) -> dict[str, Any]:
    """The arguments of ``ray.serve.llm.LLMConfig`` for a generator."""
    source = config.model
    if source.startswith(_EMBEDDED):
        source = str(Path(embedded_path(source.removeprefix(_EMBEDDED))))
    settings: dict[str, Any] = {
        "model_loading_config": {"model_id": config.model, "model_source": source},
        "deployment_config": {"num_replicas": 1, "max_ongoing_requests": config.max_in_flight},
        "engine_kwargs": {"tensor_parallel_size": config.tensor_parallel, **config.engine_kwargs},
    }
    if config.accelerator_type is not None:
        settings["accelerator_type"] = config.accelerator_type
    return settings


def _check_gpus(wanted: Sequence[VllmGenerator], num_gpus: float) -> None:
    needed = sum(config.tensor_parallel for config in wanted)
    if needed > num_gpus:
        names = ", ".join(config.name for config in wanted)
        raise ResourceError(
            f"vLLM generators {names} need {needed} GPUs and the cluster has {num_gpus:g}; add GPU nodes, lower "
            "tensor_parallel, or set each generator's `url` to a vLLM server that already runs"
        )


def _start(wanted: Sequence[VllmGenerator]) -> str:
    try:
        import vllm  # noqa: F401
        from ray import serve
        from ray.serve.llm import LLMConfig, build_openai_app
    except ImportError as error:
        raise ResourceError(
            f"generator {wanted[0].name!r} wants a vLLM server to be started, and vLLM is not installed ({error}); "
            "install the extra raydebm[vllm] on the cluster, or set the generator's `url` to a server that already runs"
        ) from error
    app = build_openai_app({"llm_configs": [LLMConfig(**llm_settings(config)) for config in wanted]})
    # Generating actors on other nodes must reach it.
    host = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
    try:
        serve.start(http_options={"host": host, "port": PORT})
        serve.run(app, name=APP, route_prefix=ROUTE)
    except (RuntimeError, TimeoutError) as error:
        raise ResourceError(f"the vLLM servers did not come up: {error}; see `serve status`") from error
    return f"http://{host}:{PORT}{ROUTE}"
