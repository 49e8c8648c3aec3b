"""How many workers of a kind the cluster holds at once.

Ray Train retries an impossible request for ever, so what cannot be placed is refused before anything starts, and no
more trainers are started than fit side by side.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ray

from raydebm.config import RayConfig
from raydebm.cpus import usable_cpus
from raydebm.distributed.session import is_own_cluster
from raydebm.errors import ResourceError

DEFAULT_GPU_SHARE = 0.5
"""Two adapters a GPU: five adapters on three GPUs become 2+2+1."""
MAX_GRAPH_GIB = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerShare:
    """What one worker takes."""

    cpus: float
    gpus: float
    threads: int = 1
    """Threads that compute, of a worker without a GPU."""

    @property
    def resources(self) -> dict[str, float]:
        """What Ray is asked for, such as ``{"CPU": 1.0, "GPU": 0.5}``; no GPU where the share has none."""
        return {"CPU": self.cpus} | ({"GPU": self.gpus} if self.gpus > 0 else {})


def cluster_nodes() -> list[dict[str, float]]:
    """The resources of each node that is alive, such as ``{"CPU": 8.0, "GPU": 1.0}``."""
    nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    return [dict(node["Resources"]) for node in nodes if node["Alive"]]


def share_of(config: RayConfig, nodes: Sequence[Mapping[str, float]], *, device: str) -> WorkerShare:
    """A worker's share: as configured, or half a GPU when the cluster has any; none for a worker on a CPU.

    Args:
        device: where its model is to be: ``auto``, or torch's name.
    """
    gpus = 0.0 if device.startswith("cpu") else config.gpus_per_adapter
    if gpus is None:
        gpus = DEFAULT_GPU_SHARE if any(node.get("GPU", 0) > 0 for node in nodes) else 0.0
    return WorkerShare(cpus=config.cpus_per_adapter, gpus=gpus, threads=config.threads_per_worker)


def gpu_share(config: RayConfig) -> float:
    """The part of a GPU's memory that a training worker on it may count on.

    With ``gpus_per_adapter: 0`` Ray does not count the workers that ``scorer.device`` sends to a GPU: two are assumed.
    """
    return config.gpus_per_adapter or DEFAULT_GPU_SHARE


def places(share: WorkerShare, nodes: Sequence[Mapping[str, float]]) -> int:
    """How many workers fit on the nodes at once; a worker lives on one node, and on one GPU.

    Raises:
        ResourceError: none fits; the message says what was asked for and what the largest node has.
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
    """How many workers share so many rows: as many as there is room for, or as ``ray.max_workers`` asks for, and no
    more than have something to do. Ray is initialised.

    Actors hold their GPU to the end, so that ``ray.max_workers`` counts for workers without one alone.

    Args:
        num_rows: at least 1.
        per_worker: rows that are worth a worker.

    Raises:
        ResourceError: none fits (see ``places``), and ``ray.max_workers`` does not ask for one.
    """
    own = is_own_cluster()
    asked_for = tasks_asked_for(config, is_own_cluster=own) if share.gpus == 0 else None
    most = asked_for or at_once(share, cluster_nodes(), is_own_cluster=own)
    return min(math.ceil(num_rows / per_worker), most)


def at_once(share: WorkerShare, nodes: Sequence[Mapping[str, float]], *, is_own_cluster: bool) -> int:
    """How many workers compute at once.

    On a machine of our own the logical CPUs are more than the cores, and a worker without a GPU fills as many cores as
    it has threads.

    Raises:
        ResourceError: none fits (see ``places``).
    """
    most = places(share, nodes)
    if share.gpus == 0 and is_own_cluster:
        return max(1, min(most, usable_cpus() // share.threads))
    return most


def tasks_asked_for(config: RayConfig, *, is_own_cluster: bool) -> int | None:
    """``ray.max_workers`` where more nodes may come; None on a machine of our own, and where the nodes that are there
    decide.

    Ray's autoscaler looks at what waits: tasks that no node can hold start one.
    """
    return None if is_own_cluster else config.max_workers


def graph_gib(share: WorkerShare, nodes: Sequence[Mapping[str, float]], *, num_workers: int) -> float | None:
    """Memory for the activations of one CPU worker's training step, in GiB; None on GPUs (see ``gpu_share``).

    A quarter of the smallest node's memory, divided by the workers that it may hold. On 24 GiB, five workers that took
    2 GiB each for activations came to 4 GiB each in all, and Ray ended them one after the other.
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
