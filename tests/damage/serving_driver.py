"""Serves a Serve configuration on a Ray of its own until its input ends; ``update`` as a line replaces all replicas."""

import sys

import ray
from ray.serve.context import _get_global_client
from ray.serve.schema import ServeDeploySchema

from raydebm.serving.ray.launch import deployed, read_serve_config


def main(path: str, port: int) -> None:
    ray.init(
        address="local",
        num_cpus=8,
        include_dashboard=False,
        object_store_memory=200_000_000,
        log_to_driver=False,
        logging_level="ERROR",
    )
    with deployed(path, port=port, args={}, timeout_s=600):
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        for number, _ in enumerate(sys.stdin):
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
