"""cluster.yaml against the schema that `ray up` uses."""

import copy

import jsonschema
import pytest
import yaml


@pytest.fixture
def cluster(repository):
    return yaml.safe_load((repository / "cluster.yaml").read_text(encoding="utf-8"))


def validate(config):
    # Private, but it is what `ray up` itself calls, and there is no dry run.
    from ray.autoscaler._private.util import prepare_config, validate_config

    validate_config(prepare_config(config))


def test_cluster_file_is_valid_for_ray_up(cluster):
    validate(cluster)


def test_a_misspelt_key_is_refused(cluster):
    broken = copy.deepcopy(cluster)
    broken["available_node_type"] = broken.pop("available_node_types")

    with pytest.raises(jsonschema.ValidationError):
        validate(broken)


def test_one_worker_type_has_three_gpus_and_the_head_has_none(cluster):
    gpus = {name: kind["resources"].get("GPU", 0) for name, kind in cluster["available_node_types"].items()}

    assert gpus == {"head": 0, "gpu_worker": 3, "cpu_worker": 0}


def test_five_adapters_fit_the_gpu_worker(cluster):
    """0.5 GPU and 1 CPU each, placed 2+2+1."""
    resources = cluster["available_node_types"]["gpu_worker"]["resources"]

    assert resources["GPU"] // 0.5 >= 5
    assert resources["CPU"] >= 5


def test_a_training_finds_its_gpus_and_the_others_scale_from_zero(cluster):
    """Trainings are placed on the nodes that are there, so the node with the GPUs must not wait to be asked for."""
    least = {name: kind.get("min_workers", 0) for name, kind in cluster["available_node_types"].items()}

    assert least == {"head": 0, "gpu_worker": 1, "cpu_worker": 0}


def test_every_ray_start_states_the_authentication_mode(cluster):
    commands = cluster["head_start_ray_commands"] + cluster["worker_start_ray_commands"]

    assert all("RAY_AUTH_MODE=" in command for command in commands if "ray start" in command)
