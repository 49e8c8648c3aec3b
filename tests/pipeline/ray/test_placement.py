"""How many workers fit."""

from types import SimpleNamespace

import pytest

from raydebm.config import RayConfig
from raydebm.errors import ResourceError
from raydebm.pipeline.ray import confounding
from raydebm.pipeline.ray.placement import (
    WorkerShare,
    at_once,
    graph_gib,
    places,
    share_of,
    workers_for,
)

LAPTOP = [{"CPU": 8.0}]
THREE_GPUS = [{"CPU": 8.0, "GPU": 3.0}]
THREE_MACHINES = [{"CPU": 4.0, "GPU": 1.0}] * 3


@pytest.mark.parametrize(
    ("config", "nodes", "expected"),
    [
        pytest.param({}, LAPTOP, (1.0, 0.0, 8), id="no GPU: the CPUs"),
        pytest.param({"cpus_per_adapter": 4}, LAPTOP, (4.0, 0.0, 2), id="fewer at once by a larger share"),
        pytest.param({}, THREE_GPUS, (1.0, 0.5, 6), id="half a GPU each: all five at once"),
        pytest.param({}, THREE_MACHINES, (1.0, 0.5, 6), id="three machines of one GPU"),
        pytest.param({"gpus_per_adapter": 0.6}, THREE_GPUS, (1.0, 0.6, 3), id="a worker does not span two GPUs"),
        pytest.param({"gpus_per_adapter": 1}, THREE_GPUS, (1.0, 1.0, 3), id="a GPU each"),
        pytest.param({"gpus_per_adapter": 0}, THREE_GPUS, (1.0, 0.0, 8), id="GPUs left alone"),
        pytest.param({"cpus_per_adapter": 3}, THREE_MACHINES, (3.0, 0.5, 3), id="CPUs limit"),
    ],
)
def test_the_configuration_alone_decides_the_placement(config, nodes, expected):
    share = share_of(RayConfig(**config), nodes)

    assert (share.cpus, share.gpus, places(share, nodes)) == expected


def test_work_on_the_scorers_node_takes_no_more_cpus_than_the_process_may_use(monkeypatch):
    recipe = SimpleNamespace(ray=RayConfig())
    monkeypatch.setattr(confounding, "cluster_nodes", lambda: [{"CPU": 64.0}])
    monkeypatch.setattr(confounding, "is_own_cluster", lambda: True)
    monkeypatch.setattr(confounding, "usable_cpus", lambda: 2)

    assert confounding.on_the_scorers_node(recipe, SimpleNamespace(options=dict)) == {"num_cpus": 2}


@pytest.mark.parametrize(
    ("share", "nodes"),
    [
        pytest.param(WorkerShare(cpus=9, gpus=0), LAPTOP, id="too many CPUs"),
        pytest.param(WorkerShare(cpus=1, gpus=0.5), LAPTOP, id="no GPU"),
        pytest.param(
            WorkerShare(cpus=6, gpus=0.5), [{"CPU": 16.0}, {"CPU": 4.0, "GPU": 1.0}], id="never both on one node"
        ),
    ],
)
def test_what_no_node_can_hold_is_refused_with_a_way_out(share, nodes):
    with pytest.raises(ResourceError, match=r"asks for .* GPU.*at most .* CPU.*Lower ray\.cpus_per_adapter"):
        places(share, nodes)


@pytest.mark.parametrize(
    ("threads", "gpus", "own", "expected"),
    [
        pytest.param(1, 0, True, 2, id="one per core, not per logical CPU"),
        pytest.param(2, 0, True, 1, id="threads take cores too"),
        pytest.param(4, 0, True, 1, id="at least one"),
        pytest.param(1, 0, False, 8, id="a given cluster says itself what it has"),
        pytest.param(1, 0.5, True, 6, id="GPUs are no cores"),
    ],
)
def test_as_many_workers_compute_at_once_as_have_cores(monkeypatch, threads, gpus, own, expected):
    monkeypatch.setattr("raydebm.pipeline.ray.placement.usable_cpus", lambda: 2)
    share = WorkerShare(cpus=1, gpus=gpus, threads=threads)

    assert at_once(share, THREE_GPUS, is_own_cluster=own) == expected


@pytest.mark.parametrize(
    ("num_rows", "max_workers", "gpus", "own", "expected"),
    [
        pytest.param(1000, None, 0, False, 8, id="as many as there is room for"),
        pytest.param(25, None, 0, False, 3, id="no more than have something to do"),
        pytest.param(1, None, 0, False, 1, id="one row"),
        pytest.param(1000, 48, 0, False, 48, id="as many as are asked for"),
        pytest.param(25, 48, 0, False, 3, id="asked for, with little to do"),
        pytest.param(1000, 48, 0.5, False, 6, id="no more actors on GPUs than fit"),
        pytest.param(1000, 48, 0, True, 2, id="no node comes to a machine of our own"),
    ],
)
def test_rows_are_shared_by_workers_that_are_worth_starting(monkeypatch, num_rows, max_workers, gpus, own, expected):
    monkeypatch.setattr("raydebm.pipeline.ray.placement.usable_cpus", lambda: 2)
    monkeypatch.setattr("raydebm.pipeline.ray.placement.is_own_cluster", lambda: own)
    monkeypatch.setattr("raydebm.pipeline.ray.placement.cluster_nodes", lambda: THREE_GPUS)
    share, config = WorkerShare(cpus=1, gpus=gpus), RayConfig(max_workers=max_workers)

    assert workers_for(num_rows, per_worker=10, share=share, config=config) == expected


@pytest.mark.parametrize(
    ("nodes", "num_workers", "expected"),
    [
        pytest.param([{"CPU": 8.0, "memory": 20.0 * 2**30}], 5, 1.0, id="a quarter of 20 GiB for five"),
        pytest.param([{"CPU": 2.0, "memory": 20.0 * 2**30}], 5, 2.0, id="two at a time, and never above 2 GiB"),
        pytest.param(
            [{"CPU": 8.0, "memory": 64.0 * 2**30}, {"CPU": 4.0, "memory": 8.0 * 2**30}], 4, 0.5, id="smallest"
        ),
        pytest.param([{"CPU": 8.0}], 5, None, id="unknown memory"),
    ],
)
def test_activations_of_all_workers_of_a_node_fit_in_a_quarter_of_its_memory(nodes, num_workers, expected):
    assert graph_gib(WorkerShare(cpus=1, gpus=0), nodes, num_workers=num_workers) == expected
