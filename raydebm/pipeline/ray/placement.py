"""Number of workers that fit the cluster at once.

Ray Train retries an impossible request forever, so a worker that fits no node is an error before anything starts, and
no more trainers start than fit side by side.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ray

from raydebm.config import RayConfig
from raydebm.cpus import usable_cpus
from raydebm.errors import ResourceError
from raydebm.pipeline.ray.session import is_own_cluster

DEFAULT_GPU_SHARE = 0.5
"""Two adapters per GPU: five adapters on three GPUs become 2+2+1."""
MAX_GRAPH_GIB = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerShare:
    """Resources of one worker."""

    cpus: float
    gpus: float
    threads: int = 1

    @property
    def resources(self) -> dict[str, float]:
        """Ray's resource request, such as ``{"CPU": 1.0, "GPU": 0.5}``; without GPU if the share has none."""
        return {"CPU": self.cpus} | ({"GPU": self.gpus} if self.gpus > 0 else {})


def cluster_nodes() -> list[dict[str, float]]:
    """Resources of each live node, such as ``{"CPU": 8.0, "GPU": 1.0}``."""
    nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    return [dict(node["Resources"]) for node in nodes if node["Alive"]]


def share_of(config: RayConfig, nodes: Sequence[Mapping[str, float]]) -> WorkerShare:
    """A worker's share: as configured, or half a GPU if the cluster has any."""
    gpus = config.gpus_per_adapter
    if gpus is None:
        gpus = DEFAULT_GPU_SHARE if any(node.get("GPU", 0) > 0 for node in nodes) else 0.0
    return WorkerShare(cpus=config.cpus_per_adapter, gpus=gpus, threads=config.threads)


def gpu_share(config: RayConfig) -> float:
    """Fraction of its GPU's memory that a training worker may use."""
    return config.gpus_per_adapter or DEFAULT_GPU_SHARE


def places(share: WorkerShare, nodes: Sequence[Mapping[str, float]]) -> int:
    """Number of workers that fit on the nodes at once; a worker needs one node, and at most one GPU.

    Raises:
        ResourceError: no worker fits; the message has the request, and the most CPUs and GPUs of any node.
    """
    num_workers = sum(_on_node(share, node) for node in nodes)
    if num_workers == 0:
        cpus = max((node.get("CPU", 0.0) for node in nodes), default=0.0)
        gpus = max((node.get("GPU", 0.0) for node in nodes), default=0.0)
        raise ResourceError(
            f"one worker asks for {share.cpus:g} CPU and {share.gpus:g} GPU, but no node of the cluster has both: "
            f"{len(nodes)} node(s) with at most {cpus:g} CPU and {gpus:g} GPU. Lower ray.cpus_per_adapter or "
            "ray.gpus_per_adapter (0 trains on CPUs), or start a larger cluster"
        )
    return num_workers


def workers_for(num_rows: int, *, per_worker: int, share: WorkerShare, config: RayConfig) -> int:
    """Number of workers for a number of rows: all that fit, or ``ray.max_workers``, but no idle ones. Ray must be
    initialised.

    ``ray.max_workers`` only counts on an existing cluster, for workers without a GPU: actors hold their GPU to the end.

    Args:
        num_rows: number of rows, at least 1.
        per_worker: smallest number of rows that is worth a worker.

    Raises:
        ResourceError: no worker fits (see ``places``), and ``ray.max_workers`` does not apply.
    """
    own = is_own_cluster()
    asked_for = tasks_asked_for(config, is_own_cluster=own) if share.gpus == 0 else None
    most = asked_for or at_once(share, cluster_nodes(), is_own_cluster=own)
    return min(math.ceil(num_rows / per_worker), most)


def at_once(share: WorkerShare, nodes: Sequence[Mapping[str, float]], *, is_own_cluster: bool) -> int:
    """Number of workers that compute at once.

    A cluster that raydebm started may have more logical CPUs than cores, and a worker without a GPU fills as many
    cores as it has threads.

    Raises:
        ResourceError: no worker fits (see ``places``).
    """
    most = places(share, nodes)
    if share.gpus == 0 and is_own_cluster:
        return max(1, min(most, usable_cpus() // share.threads))
    return most


def tasks_asked_for(config: RayConfig, *, is_own_cluster: bool) -> int | None:
    """``ray.max_workers`` on an existing cluster, which may grow; None on one that raydebm started, or if not set.

    Ray's autoscaler starts a node for waiting tasks that no node can hold.
    """
    return None if is_own_cluster else config.max_workers


def graph_gib(share: WorkerShare, nodes: Sequence[Mapping[str, float]], *, num_workers: int) -> float | None:
    """Memory for the activations of one CPU worker's training step, in GiB; None on GPUs (see ``gpu_share``).

    A quarter of a node's memory divided by its number of workers, on the node with the least; at most
    ``MAX_GRAPH_GIB``. On 24 GiB, five workers with 2 GiB of activations each took 4 GiB each in total, and Ray killed
    them one after the other.
    """
    memory = [(node["memory"], _on_node(share, node)) for node in nodes if "memory" in node and _on_node(share, node)]
    if share.gpus > 0 or not memory:
        return None
    return min(MAX_GRAPH_GIB, *(size / 2**30 * 0.25 / min(held, num_workers) for size, held in memory))


def _on_node(share: WorkerShare, node: Mapping[str, float]) -> int:
    by_cpu = math.floor(node.get("CPU", 0.0) / share.cpus)
    if share.gpus == 0:
        return by_cpu
    return min(by_cpu, math.floor(node.get("GPU", 0.0)) * math.floor(1 / share.gpus))
