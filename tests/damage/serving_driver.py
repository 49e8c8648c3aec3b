"""Serves a Serve configuration on a Ray cluster of its own until its input ends.

The head has the controller and the proxy, and each of two other nodes has room for all replicas. Lines of input:
``update`` replaces all replicas, ``node`` adds a node.
"""

import sys

import ray
from nodes_driver import add_node, cluster_of
from ray.serve.context import _get_global_client
from ray.serve.schema import ServeDeploySchema

from raydebm.service.ray.app import deployed, read_serve_config

NUM_NODES = 2


def main(path: str, port: int) -> None:
    cluster = cluster_of(NUM_NODES)
    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
    with deployed(path, port=port, args={}, timeout_s=600):
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        for number, line in enumerate(sys.stdin):
            if line == "node\n":
                add_node(cluster)
            else:
                _update(path, port, number)


def _update(path: str, port: int, number: int) -> None:
    """Deploy the configuration with one more policy, so that Serve starts new replicas before it ends the old ones."""
    tree = read_serve_config(path)
    tree["http_options"] |= {"host": "127.0.0.1", "port": port}
    tree["applications"][0]["args"].setdefault("policies", {})[f"update-{number}"] = {"max_passes": 1}
    config = ServeDeploySchema.model_validate(tree)
    _get_global_client().deploy_apps(config, _blocking=False)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
