"""A Ray cluster of nodes that can be killed: prints its address, and starts one more node for each line of input.

``python nodes_driver.py NUM_NODES``. The head has no CPU, so that all work is on the other nodes.
"""

import sys

from ray.cluster_utils import Cluster

MEMORY_BYTES = 200_000_000


def main(num_nodes: int) -> None:
    """Serve until the input ends."""
    cluster = cluster_of(num_nodes)
    cluster.wait_for_nodes(timeout=300)
    sys.stdout.write(f"{cluster.address}\n")
    sys.stdout.flush()
    for _ in sys.stdin:
        add_node(cluster)


def cluster_of(num_nodes: int) -> Cluster:
    """A head without CPUs, and nodes that are coming up."""
    head = {"num_cpus": 0, "object_store_memory": MEMORY_BYTES, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    for _ in range(num_nodes):
        add_node(cluster)
    return cluster


def add_node(cluster: Cluster) -> None:
    """Start one more node of 8 CPUs."""
    cluster.add_node(wait=False, num_cpus=8, object_store_memory=MEMORY_BYTES)


if __name__ == "__main__":
    main(int(sys.argv[1]))
