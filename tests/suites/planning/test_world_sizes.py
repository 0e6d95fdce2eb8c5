"""Several workers as an axis: which cells a plan has, what a launch on several GPUs sees, and the command itself."""

import pytest
from fake_nvml import FIRST, NO_GPU, SECOND, TWINS, TWO, gpus, stand_in
from known_networks import NETWORKS
from processes import run_command, suite_of_null

from dlbench.adapters.protocol import BOUND, Status
from dlbench.reports.storage.store import Store
from dlbench.suites.planning.axes import SuiteOverrides
from dlbench.suites.planning.plan import expand
from dlbench.suites.planning.suite import parse
from dlbench.suites.planning.values import Capacity
from dlbench.suites.run import preparation

SUITE = suite_of_null(
    step_seconds=0.2,
    world_sizes=[1, 2],
    devices=["cpu", "gpus"],
    protocol={"cell_seconds": 100.0},
    serial_fraction=0.0,
    device_step_seconds=0.05,
)


def cells(source=NO_GPU, cpus=8, **chosen):
    return expand(parse(SUITE, "here"), SuiteOverrides(**chosen), Capacity(cpus, cpus, gpus(source)), 1).cells


def test_a_plan_has_each_number_of_workers_and_on_gpus_from_the_first_one_on():
    found = [(cell.device, cell.world_size) for cell in cells(TWO)]
    assert found == [("cpu", 1), ("cpu", 2), ("cuda:0", 1), ("cuda:0", 2), ("cuda:1", 1)]
    assert [(cell.device, cell.world_size) for cell in cells(TWO, devices="cuda:1", world_sizes="2")] == [("cuda:1", 2)]


def test_workers_that_are_bound_need_a_cpu_for_each_thread_of_each():
    found = cells(cpus=4, threads="1,2,4", world_sizes="1,2", affinity=BOUND)
    assert [(cell.threads, cell.world_size) for cell in found] == [(1, 1), (2, 1), (4, 1), (1, 2), (2, 2)]
    assert {cell.all_threads for cell in found} == {1, 2, 4}


@pytest.mark.parametrize(("size", "workers"), [(16, 2), (128, 2), (32, 4), (256, 8)])
def test_the_reference_of_equal_parts_repeats_a_smaller_one_with_labels_for_each_worker(size, workers):
    # Workers of more than 8 examples each have those of 8 several times: the largest that is shipped.
    found = preparation.fitting(NETWORKS["resnet50"], size, True, pytest.fail, equal_parts=workers)
    assert found == preparation.Reference(preparation.find(NETWORKS["resnet50"], 8, workers), 8, workers)


@pytest.mark.slow
def test_the_command_measures_workers_on_the_cpu_and_on_gpus_and_tells_them_apart(tmp_path):
    (tmp_path / "mine.toml").write_text(SUITE)
    done = run_command(tmp_path, "run", "mine.toml", DLBENCH_NVML=stand_in(tmp_path, TWINS))
    assert done.returncode == 0, done.stderr
    assert "x 2 workers" in done.stderr
    with Store.open(tmp_path / "dlbench.sqlite", create=False) as store:
        records = {(r.cell.device, r.cell.world_size): r for r in store.records()}
    assert {record.outcome.status for record in records.values()} == {Status.OK}
    seconds = {key: min(record.outcome.step_seconds()) for key, record in records.items()}
    assert seconds["cpu", 2] == pytest.approx(seconds["cpu", 1] / 2, rel=0.3)
    assert seconds["cuda:0", 2] == pytest.approx(seconds["cuda:0", 1] / 2, rel=0.3)
    both = records["cuda:0", 2].outcome.software
    assert both["variables"]["CUDA_VISIBLE_DEVICES"] == FIRST  # the first worker's own
    assert [gpu["uuid"] for gpu in both["gpus"]] == [FIRST, SECOND]
    assert both["gpu"]["uuid"] == FIRST
    assert "gpus" not in records["cuda:1", 1].outcome.software
