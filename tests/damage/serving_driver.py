"""Serves a Serve configuration on a Ray cluster of its own until its input ends.

The head has the controller and the proxy, and each of two other nodes has room for all replicas. Lines of input:
``update`` replaces all replicas, ``node`` adds a node.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))

import ray
from nodes_driver import add_node, cluster_of
from ray.serve.context import _get_global_client
from served_config import configured, deployed

NUM_NODES = 2


def main(path: str, port: int) -> None:
    cluster = cluster_of(NUM_NODES)
    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
    with deployed(path, port=port):
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        for number, line in enumerate(sys.stdin):
            if line == "node\n":
                add_node(cluster)
            else:
                _update(path, port, number)


def _update(path: str, port: int, number: int) -> None:
    """Deploy the configuration with one more policy, so that Serve starts new replicas before it ends the old ones."""
    config = configured(path, port=port, policies={f"update-{number}": {"max_passes": 1}})
    _get_global_client().deploy_apps(config, _blocking=False)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
