"""LaunchRunner: the request of each launch, and its record; no process is started."""

import threading
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from fake_nvml import SECOND, TWO, gpus, nvml
from pretended_runs import Pretender
from processes import plan_of

from dlbench.adapters.protocol import Status
from dlbench.hardware_probe import probe
from dlbench.hardware_probe.cpu import bound_mask
from dlbench.reports.results.outcome import Outcome
from dlbench.reports.results.record import Run
from dlbench.suites.environments.environment import BuildSource
from dlbench.suites.errors import UsageError
from dlbench.suites.planning.plan import PlannedLaunch
from dlbench.suites.run.launch import LaunchRunner, run_attempts

PLAN = plan_of(networks="fcn5", frameworks="torch", threads="1,2", affinity="bound,oversubscribed")
MACHINE = probe()


def taker(software=None):
    """Return a launcher that notes its orders and answers that all is well."""
    return Pretender(
        lambda cell: Outcome(Status.OK, samples_ns=[10**7] * 3, software=software or {})
    )


@pytest.fixture(autouse=True)
def _home(tmp_path, monkeypatch):
    monkeypatch.setenv("DLBENCH_HOME", str(tmp_path))


def runner_with(launcher, **options):
    run = Run(
        "r1", "quick", PLAN.protocol, 1, PLAN.cells, "machine-1", datetime.now(UTC), "9", None, 1
    )
    (row,) = PLAN.rows
    sources = {"torch": BuildSource(row.build, Path("/torch/python"), "CPython 3", "env-1")}
    return LaunchRunner(
        PLAN, run, launcher, sources, lambda cell: None, **{"machine": MACHINE, **options}
    )


def records_of(runner, planned, protocol, **options):
    return [
        record
        for (record,) in run_attempts(
            {planned.side: runner}, (planned,), lambda cell: protocol, **options
        )
    ]


def planned(affinity="oversubscribed", threads=1):
    cell = next(cell for cell in PLAN.cells if (cell.affinity, cell.threads) == (affinity, threads))
    return PlannedLaunch(cell, 4)


def test_a_bound_cell_is_given_as_many_cpus_as_threads_and_another_none():
    launcher = taker()
    runner = runner_with(launcher)
    records_of(runner, planned("bound"), PLAN.protocol)
    records_of(runner, planned("oversubscribed"), PLAN.protocol)
    bound, free = launcher.orders
    assert bound.launch.cpus == list(bound_mask(MACHINE.cpu, 1))
    assert len(bound.launch.cpus) == 1
    assert free.launch.cpus is None


def test_a_launch_on_one_node_may_use_the_cpus_of_the_largest_alone():
    launcher = taker()
    places = tuple({"socket": 0, "node": node, "kind": 0} for node in (0, 1, 1))
    cpu = replace(
        MACHINE.cpu, affinity=(0, 1, 2, 3), core_siblings=((0,), (1, 2), (3,)), core_places=places
    )
    on_one = PlannedLaunch(planned().cell._replace(tuning="tuned+one_node"), 0)
    records_of(runner_with(launcher, machine=replace(MACHINE, cpu=cpu)), on_one, PLAN.protocol)
    assert launcher.orders[0].launch.cpus == [1, 2, 3]


def test_more_bound_threads_than_cpus_are_refused_in_a_sentence():
    too_many = PlannedLaunch(planned("bound").cell._replace(threads=10**6), 0)
    with pytest.raises(UsageError, match="1000000 threads cannot be bound"):
        records_of(runner_with(taker()), too_many, PLAN.protocol)


def test_a_side_has_variables_and_adapters_of_its_own():
    launcher = taker()
    side = runner_with(
        launcher, variables={"OMP_NUM_THREADS": "7", "MINE": "yes"}, guest=Path("/other/adapters")
    )
    of_gate = replace(side, run=replace(side.run, purpose="gate"))
    (record,) = records_of(of_gate, replace(planned(), side="candidate"), PLAN.protocol)
    records_of(runner_with(launcher), planned(), PLAN.protocol)
    changed, unchanged = launcher.orders
    assert (changed.variables["OMP_NUM_THREADS"], changed.variables["MINE"]) == ("7", "yes")
    assert changed.guest == Path("/other/adapters")
    assert (unchanged.variables["OMP_NUM_THREADS"], unchanged.guest) == ("1", None)
    assert {**unchanged.variables, "OMP_NUM_THREADS": "7", "MINE": "yes"} == changed.variables
    assert (record.side, record.stage, record.attempt, record.launch) == ("candidate", "gate", 0, 4)


def test_a_cold_start_finds_an_empty_cache_and_leaves_none():
    results = []

    def compiles(cell):
        folder = Path(launcher.orders[-1].launch.cache_directory)
        results.append([path.name for path in folder.iterdir()])
        (folder / "program").touch()
        return Outcome(Status.OK, samples_ns=[10**7] * 3, software={"version": "1"})

    launcher = Pretender(compiles)
    runner = runner_with(launcher)
    for launch_runner in (runner, runner, replace(runner, plan=replace(PLAN, cold_start=True))):
        (record,) = records_of(launch_runner, planned(), PLAN.protocol)
    assert results == [[], ["program"], []]
    warm, _, cold = (Path(order.launch.cache_directory) for order in launcher.orders)
    assert warm.exists()
    assert not cold.exists()
    assert record.outcome.software["cold_start"] is True


def on_gpu(number=1, network="fcn5"):
    return PlannedLaunch(planned().cell._replace(device=f"cuda:{number}", network=network), 0)


def test_a_launch_on_a_gpu_sees_that_one_and_its_record_says_which_it_was():
    launcher = taker(software={"version": "1"})
    runner = runner_with(
        launcher,
        machine=replace(MACHINE, gpus=gpus(TWO)),
        nvml=nvml(TWO),
        variables={"CUDA_VISIBLE_DEVICES": "0,1"},
    )
    (record,) = records_of(runner, on_gpu(), PLAN.protocol)
    (order,) = launcher.orders
    assert order.launch.gpu == order.variables["CUDA_VISIBLE_DEVICES"] == SECOND
    assert order.variables["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert order.variables["CUDA_CACHE_PATH"].startswith(order.launch.cache_directory)
    reported = {"index": 1, "name": "NVIDIA H200", "uuid": SECOND, "driver": "550.54.15"}
    assert record.outcome.software == {"version": "1", "gpu": reported, "tunable": ["fused_update"]}
    assert record.telemetry["gpu"]["uuid"] == SECOND
    assert (
        record.telemetry["samples"]["at"][0]
        <= record.telemetry["launched_at"]
        <= record.telemetry["samples"]["at"][-1]
    )
    (on_cpu,) = records_of(runner, planned(), PLAN.protocol)
    assert launcher.orders[-1].launch.gpu is None
    assert launcher.orders[-1].variables["CUDA_VISIBLE_DEVICES"] == ""
    assert "CUDA_CACHE_PATH" not in launcher.orders[-1].variables
    software = {"version": "1", "tunable": ["keep_heap", "fused_update"]}
    assert (on_cpu.outcome.software, on_cpu.telemetry) == (software, None)


def test_a_gpu_that_was_renumbered_is_the_same_and_one_that_is_lost_starts_nothing():
    launcher = taker()
    remaining_gpu = f"fake.FakeNvml(fake.board('NVIDIA H200', uuid={SECOND!r}))"
    runner = runner_with(
        launcher, machine=replace(MACHINE, gpus=gpus(TWO)), nvml=nvml(remaining_gpu)
    )
    records_of(runner, on_gpu(), PLAN.protocol)
    (lost,) = records_of(runner, on_gpu(0), PLAN.protocol, most=3)
    assert [order.launch.gpu for order in launcher.orders] == [SECOND]
    assert (lost.outcome.status, lost.telemetry) == (Status.SKIPPED, None)
    assert lost.outcome.reason.startswith("cuda:0 (NVIDIA A100")


def test_an_interrupted_launch_on_a_gpu_leaves_no_sampling_behind():
    playing = nvml(TWO)
    runner = runner_with(
        Pretender(ends_at=0), machine=replace(MACHINE, gpus=gpus(TWO)), nvml=playing
    )
    with pytest.raises(KeyboardInterrupt):
        records_of(runner, on_gpu(), PLAN.protocol)
    assert playing.opened == 0
    assert not [thread for thread in threading.enumerate() if thread.name == "gpu-telemetry"]
