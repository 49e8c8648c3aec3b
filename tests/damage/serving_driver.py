"""Serves a Serve configuration on a Ray cluster of its own until its input ends.

The head has the controller and the proxy, and each of two other nodes has room for all replicas. Lines of input:
``update`` replaces all replicas, ``node`` adds a node.
"""

import sys

import ray
from ray.cluster_utils import Cluster
from ray.serve.context import _get_global_client
from ray.serve.schema import ServeDeploySchema

from raydebm.serving.ray.launch import deployed, read_serve_config

NUM_NODES = 2
MEMORY_BYTES = 200_000_000


def main(path: str, port: int) -> None:
    head = {"num_cpus": 0, "object_store_memory": MEMORY_BYTES, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    for _ in range(NUM_NODES):
        _add_node(cluster)
    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
    with deployed(path, port=port, args={}, timeout_s=600):
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        for number, line in enumerate(sys.stdin):
            if line == "node\n":
                _add_node(cluster)
            else:
                _update(path, port, number)


def _add_node(cluster: Cluster) -> None:
    cluster.add_node(wait=False, num_cpus=8, object_store_memory=MEMORY_BYTES)


def _update(path: str, port: int, number: int) -> None:
    """Deploy the configuration with one more policy, so that Serve starts new replicas before it ends the old ones."""
    tree = read_serve_config(path)
    tree["http_options"] |= {"host": "127.0.0.1", "port": port}
    tree["applications"][0]["args"].setdefault("policies", {})[f"update-{number}"] = {"max_passes": 1}
    config = ServeDeploySchema.model_validate(tree)
    _get_global_client().deploy_apps(config, _blocking=False)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
