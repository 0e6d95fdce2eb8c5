"""Plans: what is measured, in which order, for how long, and what is too much for a machine."""

import shlex
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from fake_nvml import FIRST, NO_GPU, SECOND, TWINS, TWO, gpus, stand_in
from hypothesis import given
from hypothesis import strategies as st
from pretended_runs import PLAN
from processes import records_in, refusal, run_command, suite_of_null

from dlbench.adapters.families.own import Own
from dlbench.adapters.launch.batches import mini_batch
from dlbench.adapters.networks import network_with
from dlbench.adapters.protocol import BOUND, INSTALLED, TUNED, Status
from dlbench.hardware_probe import probe
from dlbench.reports.results.outcome import Outcome
from dlbench.reports.results.record import Record
from dlbench.reports.results.storage.store import Store
from dlbench.suites.errors import SuiteError, UsageError
from dlbench.suites.planning import framework, networks, suite, values
from dlbench.suites.planning.axes import AXIS_OPTIONS, SuiteOverrides
from dlbench.suites.planning.framework import find
from dlbench.suites.planning.plan import (
    GPU_SAMPLE_SECONDS,
    QUOTA_SAMPLE_SECONDS,
    LaunchDurations,
    any_batch_size,
    any_threads,
    expand,
    rough_duration,
    too_large,
)
from dlbench.suites.planning.suite import load, parse
from dlbench.suites.planning.values import Capacity
from dlbench.suites.run import preparation

MACHINE = Capacity(cores=2, cpus=4, gpus=gpus(TWO))
AS_THE_SUITE_SAYS = SuiteOverrides()
TABLE = suite.load("table4")
QUICK = suite.load("quick")

choices_of_a_user = st.builds(
    SuiteOverrides,
    networks=st.sampled_from([None, "fcn5", "fcn5,lstm32", "fcn5,fcn5"]),
    frameworks=st.sampled_from([None, "null", "torch:*,null"]),
    threads=st.sampled_from([None, "1", "3,1-2", "4,1,8"]),
    batch_sizes=st.sampled_from([None, "64", "8,16"]),
    devices=st.sampled_from([None, "cpu", "cpu,cuda:0", "cpu,cpu", "gpus,cpu"]),
    precisions=st.sampled_from([None, "tf32,float32"]),
    placements=st.sampled_from([None, "resident,pinned"]),
    launches=st.sampled_from([None, 1, 3]),
)
seeds = st.integers(0, 2**31)


def plan_of(choices=AS_THE_SUITE_SAYS, seed=1, suite_of_plan=QUICK, machine=MACHINE):
    return expand(suite_of_plan, choices, machine, seed)


@given(choices_of_a_user, seeds)
def test_each_block_launches_each_cell_once_in_an_order_that_the_seed_makes_again(choices, seed):
    plan = plan_of(choices, seed)
    order = list(plan.order())
    assert len(set(plan.cells)) == len(plan.cells)
    assert len(order) == plan.launches * len(plan.cells)
    for block in range(plan.launches):
        part = order[block * len(plan.cells) : (block + 1) * len(plan.cells)]
        assert {planned.index for planned in part} == {block}
        assert sorted(planned.cell for planned in part) == sorted(plan.cells)
    assert list(plan_of(choices, seed).order()) == order


@given(choices_of_a_user, seeds)
def test_in_the_first_block_the_fewest_threads_of_a_group_come_first(choices, seed):
    plan = plan_of(choices, seed)
    first = {}
    for planned in plan.order():
        first.setdefault(any_threads(planned.cell), planned.cell)
    for group, cell in first.items():
        assert cell.threads == min(c.threads for c in plan.cells if any_threads(c) == group)


def values_of(plan, field):
    return {getattr(cell, field) for cell in plan.cells}


@pytest.mark.parametrize(
    ("choices", "field", "expected"),
    [
        (
            SuiteOverrides(networks="resnet50"),
            "network",
            {"resnet50"},
        ),  # beyond the suite's own networks too
        (SuiteOverrides(frameworks="torch:compile"), "mode", {"compile"}),
        (SuiteOverrides(threads="3,5-6"), "threads", {3, 5, 6}),
        (SuiteOverrides(threads="2*cpus"), "threads", {8}),
        (SuiteOverrides(cpu_quota="none,1.5"), "cpu_quota", {0.0, 1.5}),
        (SuiteOverrides(batch_sizes="16,64"), "batch_size", {16, 64}),
        (SuiteOverrides(devices="cuda:all"), "device", {"cuda:0", "cuda:1"}),
        (SuiteOverrides(devices="cuda:0"), "threads", {2}),  # the cores
        (SuiteOverrides(devices="cuda:0", device_threads="1"), "threads", {1}),
        (
            SuiteOverrides(devices="cuda:0", precisions="tf32,float16"),
            "precision",
            {"tf32", "float16"},
        ),
        (
            SuiteOverrides(devices="cuda:0", placements="pinned,pageable"),
            "placement",
            {"pinned", "pageable"},
        ),
        (SuiteOverrides(placements="fed,prefetched"), "placement", {"fed", "prefetched"}),
        (SuiteOverrides(placements="loader", loader_workers="0,cpus"), "loader_workers", {0, 4}),
        (SuiteOverrides(placements="loader", storage="disk,cache"), "storage", {"disk", "cache"}),
    ],
)
def test_every_axis_can_be_chosen(choices, field, expected):
    assert values_of(plan_of(choices), field) == expected


@given(st.permutations([8, 16, 64, 256]), seeds)
def test_on_a_gpu_the_smaller_mini_batches_of_a_cell_come_first_in_the_first_block(sizes, seed):
    sizes = ",".join(map(str, sizes))
    choices = SuiteOverrides(
        networks="fcn5,lstm32", frameworks="null", devices="cpu,gpus", batch_sizes=sizes, launches=2
    )
    orders = [list(plan_of(choices, seed + more).order()) for more in range(5)]
    order = orders[0]
    groups = {}
    for planned in order[: len(order) // 2]:
        groups.setdefault(any_batch_size(planned.cell), []).append(planned.cell.batch_size)
    assert all(sizes == sorted(sizes) for group, sizes in groups.items() if not group.on_cpu)
    # The groups themselves stay mixed, which chance may hide in one order.
    assert any(len({planned.cell.device for planned in order[:12]}) > 1 for order in orders)


def test_a_mode_of_gpus_only_has_cells_there_alone():
    plan = plan_of(
        SuiteOverrides(networks="fcn5", frameworks="torch:*", devices="cpu,gpus", threads="1")
    )
    modes = find("torch").modes
    for mode, about in modes.items():
        kinds = {"cpu" if cell.on_cpu else "gpu" for cell in plan.cells if cell.mode == mode}
        assert kinds == (set() if about.families else set(about.devices))
    only_there = next(mode for mode, about in modes.items() if about.devices == ("gpu",))
    with pytest.raises(UsageError, match=f"torch {only_there}: not a mode of cpu"):
        plan_of(SuiteOverrides(frameworks=f"torch:{only_there}"))


def test_the_suites_threads_keep_to_its_limit():
    assert values_of(plan_of(suite_of_plan=TABLE, machine=Capacity(2, 4)), "threads") == {
        1,
        2,
        4,
        8,
        16,
    }
    assert values_of(
        plan_of(SuiteOverrides(threads_limit="2"), suite_of_plan=TABLE, machine=Capacity(2, 4)),
        "threads",
    ) == {1, 2}
    with pytest.raises(UsageError, match="Raise --threads-limit"):
        plan_of(SuiteOverrides(threads="8", threads_limit="4"))


def counts_by_quota(**words):
    plan = plan_of(SuiteOverrides(networks="fcn5", frameworks="null", **words))
    counts = {}
    for cell in plan.cells:
        counts.setdefault(cell.cpu_quota, []).append(cell.threads)
    return plan, counts


def test_threads_follow_the_quota_of_their_cell():
    plan, counts = counts_by_quota(threads="default,quota,cpus", cpu_quota="none,0.5..cpus")
    halves = {0.5: [0, 1, 4], 1.0: [0, 1, 4], 1.5: [0, 2, 4], 2.0: [0, 2, 4]}
    assert counts == {0.0: [0, 4], **halves, 3.0: [0, 3, 4], 4.0: [0, 4]}
    unlimited, limited = (
        next(cell for cell in plan.cells if bool(cell.cpu_quota) is has) for has in (False, True)
    )
    assert plan.protocol_of(unlimited) == plan.protocol
    assert plan.protocol_of(limited).sample_seconds == QUOTA_SAMPLE_SECONDS
    assert counts_by_quota(threads="default,2", affinity="bound")[1] == {0.0: [2]}


def test_samples_of_a_gpu_last_long_enough_for_its_energy_counter():
    on_two_devices = plan_of(
        SuiteOverrides(networks="fcn5", frameworks="null", devices="cpu,cuda:0")
    )
    seconds = {
        cell.device: on_two_devices.protocol_of(cell).sample_seconds
        for cell in on_two_devices.cells
    }
    assert seconds == {"cpu": on_two_devices.protocol.sample_seconds, "cuda:0": GPU_SAMPLE_SECONDS}
    single = replace(on_two_devices, protocol=on_two_devices.protocol._replace(sample_seconds=0.0))
    assert all(single.protocol_of(cell).sample_seconds == 0.0 for cell in single.cells)


def test_quotas_that_no_machine_like_this_gives_are_refused_where_they_were_typed():
    with pytest.raises(UsageError, match=r"--cpu-quota 4\.5 is more than the 4 CPUs"):
        counts_by_quota(cpu_quota="1,4.5")
    suite = QUICK.model_copy(update={"cpu_quota": "1,64"})
    assert values_of(plan_of(suite_of_plan=suite), "cpu_quota") == {1.0}
    # A tighter quota around dlbench counts in the number of CPUs, not in what can be asked for.
    within = plan_of(SuiteOverrides(cpu_quota="2"), machine=Capacity(1, 1, mask=2))
    assert values_of(within, "cpu_quota") == {2.0}
    with pytest.raises(UsageError, match="Binding threads to CPUs needs a thread count"):
        counts_by_quota(threads="default", affinity="bound")


@pytest.mark.parametrize(
    ("name", "launches", "interval", "expected"),
    [
        ("quick", None, None, (2, 2, None)),
        ("quick", 5, None, (5, 5, None)),
        ("quick", "5-20", None, (5, 20, 0.02)),
        ("quick", None, "1%", (3, 20, 0.01)),
        ("quick", "3-8", "5%", (3, 8, 0.05)),
        ("quick", None, "fastest", (3, 20, None)),
        ("threads", None, None, (3, 10, 0.02)),
    ],
)
def test_launches_and_interval_of_a_fixed_suite_and_of_one_with_a_range(
    name, launches, interval, expected
):
    plan = plan_of(
        SuiteOverrides(launches=launches, interval=interval), suite_of_plan=suite.load(name)
    )
    assert (plan.launches, plan.most, plan.interval) == expected


@pytest.mark.parametrize(
    ("choices", "remedy"),
    [
        (SuiteOverrides(frameworks="null:fast"), "It has: null"),
        (SuiteOverrides(frameworks="reference"), "There is no framework"),
        (
            SuiteOverrides(
                frameworks="torch-nightl", builds=(values.build("torch-nightly:torch=/x"),)
            ),
            "'torch-nightly'?",
        ),
        (SuiteOverrides(batch_sizes="1000001"), "1000000"),
        (SuiteOverrides(devices="cuda:0", threads="1"), "--device-threads"),
        (SuiteOverrides(placements="pinned"), "Name a GPU"),
        (
            SuiteOverrides(placements="loader", loader_workers="1,5"),
            "--loader-workers 5 is more than the 4 CPUs",
        ),
        (SuiteOverrides(loader_workers="1"), "Add --placements loader"),
        (SuiteOverrides(placements="fed", storage="disk"), "Add --placements loader"),
        (
            SuiteOverrides(placements="loader", loader_workers="few"),
            "is not a number of loader workers",
        ),
        (SuiteOverrides(launches=0), "1 to 1000000"),
        (SuiteOverrides(interval="1%", launches="5"), "needs a range of launches"),
        (SuiteOverrides(interval="fastet"), "or fastest"),
        (
            SuiteOverrides(affinity="bound", threads="5,6"),
            "This machine has 4 CPUs to bind threads to",
        ),
        (SuiteOverrides(builds=(values.build("a:torch=/x"),) * 2), "Give them different names"),
        (SuiteOverrides(steps=0), "from 1"),
    ],
)
def test_a_wrong_choice_is_refused_with_the_remedy(choices, remedy):
    with pytest.raises(UsageError) as caught:
        plan_of(choices)
    assert remedy in str(caught.value)


def test_only_a_loader_has_workers_and_a_storage():
    overrides = SuiteOverrides(
        networks="fcn5",
        frameworks="null",
        threads="1,4",
        loader_workers="0,2",
        storage="cache,disk",
    )
    plan = plan_of(overrides.but(placements="resident,pinned,fed,loader"))
    choices = {}
    for cell in plan.cells:
        choices.setdefault(cell.placement, set()).add(
            (cell.threads, cell.loader_workers, cell.storage)
        )
    without_loader = {(1, 0, "cache"), (4, 0, "cache")}
    loaders = {
        (threads, workers, where)
        for threads in (1, 4)
        for workers in (0, 2)
        for where in ("cache", "disk")
    }
    assert choices == {"resident": without_loader, "fed": without_loader, "loader": loaders}
    # Bound, each thread and each loader worker has a CPU; what does not fit is left out.
    bound = plan_of(
        overrides.but(placements="prefetched,loader", storage="cache", affinity="bound")
    )
    assert {(cell.placement, cell.threads, cell.loader_workers) for cell in bound.left_out} == {
        ("prefetched", 4, 0),
        ("loader", 4, 2),
    }
    # A suite may name more workers than a machine has CPUs.
    feed = suite.load("feed")
    assert values_of(plan_of(suite_of_plan=feed, machine=Capacity(1, 1)), "loader_workers") == {
        0,
        1,
    }
    for cell in plan_of(suite_of_plan=feed, machine=Capacity(2, 2)).cells:
        words = shlex.split(suite.rerun_command(cell, "feed"))[3:]
        options = {option.option: option.key for option in AXIS_OPTIONS}
        choices = {
            options[name]: value for name, value in zip(words[::2], words[1::2], strict=True)
        }
        assert plan_of(
            SuiteOverrides(**choices), suite_of_plan=feed, machine=Capacity(2, 2)
        ).cells == (cell,)


NIGHTLY = values.build("torch-nightly:torch=/opt/nightly/bin/python")


def test_a_build_under_a_name_of_its_own_stands_beside_the_frameworks_row():
    plan = plan_of(SuiteOverrides(builds=(NIGHTLY,)))
    assert values_of(plan, "framework") == {*values_of(plan_of(), "framework"), "torch-nightly"}
    cell = next(cell for cell in plan.cells if cell.framework == "torch-nightly")
    assert cell.adapter == "pytorch"
    assert plan.row_of(cell).build.interpreter == Path("/opt/nightly/bin/python")
    torch = next(cell for cell in plan.cells if cell.framework == "torch")
    assert plan.row_of(torch).build.interpreter is None


@pytest.mark.parametrize(
    ("frameworks", "rows"),
    [
        (
            "torch",
            {("torch", "eager"), ("torch-nightly", "eager")},
        ),  # typed, so never ignored in silence
        ("torch-nightly", {("torch-nightly", "eager")}),
        ("torch-nightly:compile,null", {("torch-nightly", "compile"), ("null", "null")}),
    ],
)
def test_a_build_joins_the_frameworks_that_were_typed(frameworks, rows):
    plan = plan_of(SuiteOverrides(frameworks=frameworks, builds=(NIGHTLY,)))
    assert {(cell.framework, cell.mode) for cell in plan.cells} == rows


MACHINE_FEASIBLE = probe()
GIB = 2**30
LARGE = """
name = "large"
summary = "too large for any machine"
networks = ["wide"]
frameworks = ["torch"]
threads = [1]
[protocol]
warmup_steps = 1
steps = 2
[[network]]
name = "wide"
batch_size = 1000000
"""
DENSE = """
family = "feedforward"
inputs = 90000
hidden = [90000]
outputs = 4
activation = "tanh"
"""
MACHINE = """
family = "boltzmann"
units = 90000
order = "bipartite"
"""


def machine(gigabytes, limit=None, board=None):
    memory = replace(
        MACHINE_FEASIBLE.memory, total_bytes=gigabytes * GIB, limit_bytes=limit and limit * GIB
    )
    boards = gpus(TWO)
    reported = tuple(
        replace(gpu, memory_bytes=board and int(board * GIB)) for gpu in boards.devices
    )
    return replace(MACHINE_FEASIBLE, memory=memory, gpus=replace(boards, devices=reported))


@pytest.mark.parametrize("name", networks.shipped())
def test_the_estimate_is_below_what_the_arrays_of_one_step_take(name):
    network = networks.shipped()[name]
    inputs, labels = (np.asarray(array) for array in mini_batch(network, 2))
    least = network.family.least_bytes(2)
    weights = sum(int(np.prod(array.shape)) for array in network.family.parameters())
    assert least <= 8 * weights + inputs.size * 4 + labels.size * 4
    assert least > 8 * weights


@pytest.mark.parametrize(
    ("device", "host", "reported"),
    [
        ("cpu", machine(1), ""),
        ("cpu", machine(64, limit=1), ""),
        ("cpu", machine(0), "this machine has 0.0 GB"),
        ("cuda:0", machine(64, board=1), ""),
        ("cuda:0", machine(64), ""),
        ("cuda:0", machine(64, board=0.25), "cuda:0 has 0.3 GB"),
    ],
)
def test_memory_is_that_of_the_machine_its_group_or_the_gpu(device, host, reported):
    plan = plan_of(
        SuiteOverrides(networks="fcn5", frameworks="torch", devices=device, batch_sizes="64")
    )
    why = too_large(plan, plan.cells[0], host)
    assert reported in why
    assert bool(reported) == bool(why)


@pytest.mark.parametrize(
    ("numbers", "needed"),
    [(DENSE, "weights, gradients and mini-batch"), (MACHINE, "weights and chains")],
)
def test_what_does_not_fit_is_said_and_becomes_cells_with_the_reason(
    numbers, needed, command, tmp_path, monkeypatch
):
    monkeypatch.setenv("DLBENCH_HOME", str(tmp_path / "home"))  # without environments
    (tmp_path / "large.toml").write_text(LARGE + numbers)
    _, planned, _ = command("plan", "large.toml")
    text = (
        "1 cell does not fit into memory and will not be launched; wide, mini-batch 1000000: "
        f"{needed}"
    )
    assert text in " ".join(planned.split())
    _, _, complaint = command(
        "run", "large.toml", "--no-ceilings", "--no-wait-for-quiet", "--no-build"
    )
    assert text in " ".join(complaint.split())
    (record,) = records_in(tmp_path)
    assert record.outcome.status is Status.SKIPPED
    assert "need at least" in record.outcome.reason


def test_run_asks_for_yes(command, tmp_path):
    words = (
        "--frameworks",
        "null",
        "--networks",
        "fcn5",
        "--threads",
        "1",
        "--batch-sizes",
        "1-10001",
    )
    assert "--yes" in refusal(command, "run", "quick", *words)
    assert not (tmp_path / "dlbench.sqlite").exists()


SUITE = suite_of_null(
    step_seconds=0.2,
    world_sizes=[1, 2],
    devices=["cpu", "gpus"],
    protocol={"cell_seconds": 100.0},
    serial_fraction=0.0,
    device_step_seconds=0.05,
)


def cells(source=NO_GPU, cpus=8, **chosen):
    return expand(
        parse(SUITE, "here"), SuiteOverrides(**chosen), Capacity(cpus, cpus, gpus(source)), 1
    ).cells


def test_a_plan_has_each_number_of_workers_and_on_gpus_from_the_first_one_on():
    workers = [(cell.device, cell.world_size) for cell in cells(TWO)]
    assert workers == [("cpu", 1), ("cpu", 2), ("cuda:0", 1), ("cuda:0", 2), ("cuda:1", 1)]
    assert [
        (cell.device, cell.world_size) for cell in cells(TWO, devices="cuda:1", world_sizes="2")
    ] == [("cuda:1", 2)]


def test_workers_that_are_bound_need_a_cpu_for_each_thread_of_each():
    planned = cells(cpus=4, threads="1,2,4", world_sizes="1,2", affinity=BOUND)
    assert [(cell.threads, cell.world_size) for cell in planned] == [
        (1, 1),
        (2, 1),
        (4, 1),
        (1, 2),
        (2, 2),
    ]
    assert {cell.all_threads for cell in planned} == {1, 2, 4}


def test_one_worker_exchanges_with_none():
    exchanges = [(cell.world_size, cell.sync) for cell in cells(sync="step,local:3,async")]
    assert exchanges == [(1, "step"), (2, "step"), (2, "local:3"), (2, "async")]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (
            {"sync": "async", "world_sizes": "1"},
            "--sync async is for several workers, and there is one",
        ),
        ({"sync": "step,local:2", "world_sizes": "1"}, "--sync local:2 is for several workers"),
        (
            {"sync": "local:4"},
            "local:4 has more local steps than the 3 steps that a launch times. Give --steps 4",
        ),
        ({"sync": "local:0"}, "'local:0' is not a known sync"),
        ({"sync": "local:1000000"}, "'local:1000000' is not a known sync"),
    ],
)
def test_exchanges_that_cannot_be_are_refused(words, complaint):
    with pytest.raises(UsageError, match=complaint):
        cells(**words)


@pytest.mark.slow
def test_the_command_measures_workers_on_the_cpu_and_on_gpus_and_tells_them_apart(tmp_path):
    (tmp_path / "mine.toml").write_text(SUITE)
    done = run_command(tmp_path, "run", "mine.toml", DLBENCH_NVML=stand_in(tmp_path, TWINS))
    assert done.returncode == 0, done.stderr
    assert "x 2 workers" in done.stderr
    records = {(r.cell.device, r.cell.world_size): r for r in records_in(tmp_path)}
    assert {record.outcome.status for record in records.values()} == {Status.OK}
    seconds = {key: min(record.outcome.step_seconds()) for key, record in records.items()}
    assert seconds["cpu", 2] == pytest.approx(seconds["cpu", 1] / 2, rel=0.3)
    assert seconds["cuda:0", 2] == pytest.approx(seconds["cuda:0", 1] / 2, rel=0.3)
    software = records["cuda:0", 2].outcome.software
    assert software["variables"]["CUDA_VISIBLE_DEVICES"] == FIRST  # the first worker's own
    assert [gpu["uuid"] for gpu in software["gpus"]] == [FIRST, SECOND]
    assert software["gpu"]["uuid"] == FIRST
    assert "gpus" not in records["cuda:1", 1].outcome.software


CELLS = {(cell.mode, cell.network, cell.threads): cell for cell in PLAN.cells}
EAGER = CELLS["eager", "fcn5", 1]


@pytest.mark.parametrize(
    ("earlier", "expected"),
    [
        ({("null", "fcn5", 1): 2.0}, None),  # it computes nothing: that says nothing about others
        ({("eager", "lstm32", 1): 2.0}, None),
        ({("compile", "fcn5", 1): 30.0}, 30.0),
        (
            {("compile", "fcn5", 1): 30.0, ("eager", "fcn5", 2): 20.0, ("eager", "fcn5", 4): 10.0},
            15.0,
        ),
        ({("eager", "fcn5", 1): 40.0, ("eager", "fcn5", 2): 20.0}, 40.0),
    ],
)
def test_the_launches_most_alike_count(earlier, expected):
    durations = LaunchDurations(PLAN, {CELLS[key]: seconds for key, seconds in earlier.items()})
    assert durations.by_launches(EAGER) == expected
    assert durations.launch_duration(EAGER) == (
        expected or rough_duration(EAGER, PLAN.networks["fcn5"], PLAN.protocol)
    )


def test_a_rough_estimate_is_scaled_by_how_long_the_launches_so_far_took_of_theirs():
    durations, second_cell = LaunchDurations(PLAN), CELLS["eager", "lstm32", 1]
    rough = durations.launch_duration(second_cell)
    durations.add(EAGER, 3 * durations.launch_duration(EAGER))
    assert durations.launch_duration(second_cell) == pytest.approx(3 * rough)


def test_the_time_for_samples_is_expected_of_a_step_of_unknown_arithmetic():
    own = network_with("own", Own(), 64, "")
    assert (
        rough_duration(EAGER._replace(network="own"), own, PLAN.protocol) >= PLAN.protocol.seconds
    )


def keep_launches(**chosen):
    """Store launches of 90 s of what is chosen of the suite quick."""
    machine = probe()
    plan = expand(
        suite.load("quick"),
        SuiteOverrides(frameworks="null", **chosen),
        preparation.capacity(machine),
        1,
    )
    with Store.open("dlbench.sqlite") as store:
        run = preparation.new_run(plan, machine)
        store.begin_run(run)
        for cell in plan.cells:
            store.append(
                Record(
                    *(run.id, run.suite, 0, cell, Outcome(Status.OK), machine.fingerprint, "", ""),
                    *(run.protocol, datetime.now(UTC), 90.0, "0"),
                )
            )


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ({}, "About 18 min, by earlier launches of these cells; at most "),
        (
            {"threads": "1"},
            "About 18 min, by earlier launches of 2 of these cells and of others; at",
        ),
        (
            {"networks": "fcn5"},
            "No estimate: the store has no launches of some of these networks on this",
        ),
    ],
)
def test_how_long_a_run_takes_is_told_by_earlier_launches(command, chosen, message):
    keep_launches(**chosen)
    code, out, _ = command("plan", "quick", "--frameworks", "null", "--threads", "1,2,4")
    assert code == 0
    assert message in " ".join(out.split())
    assert max(len(line) for line in out.splitlines()) <= 80
    # What computes nothing says nothing about others.
    _, out, _ = command("plan", "quick", "--frameworks", "torch", "--threads", "1,2,4")
    assert "No estimate: the store has no launches of these networks" in " ".join(out.split())


HEAD = 'name = "made_up"\ntitle = "Made up"\nsummary = "none"\n[variables]\nTHREADS = "{threads}"\n'
MODES = '[modes.plain]\nsummary = "plain"\nsettings = { a = 1 }\n'


def plan(names, **chosen):
    choices = SuiteOverrides(frameworks=names, threads="1", **chosen)
    return expand(load("table4"), choices, Capacity(2, 2), 1)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[tuning.a]\nreplaces = ""\nwhy = ""\n', "the setting a needs settings or variables"),
        (
            '[tuning.a]\nreplaces = ""\nwhy = ""\nmodes = ["none"]\nsettings = { b = 1 }\n',
            "unknown mode 'none'",
        ),
        ('[tuning."a+b"]\nreplaces = ""\nwhy = ""\nsettings = { b = 1 }\n', "tuning"),
        (
            '[tuning.a]\nreplaces = ""\nwhy = ""\nvariables = { B = "{nosuch}" }\n',
            "unknown placeholder {nosuch}",
        ),
    ],
)
def test_a_setting_that_cannot_be_is_refused_by_name(tmp_path, text, words):
    (tmp_path / "framework.toml").write_text(HEAD + MODES + text)
    with pytest.raises(SuiteError, match=words):
        framework.read(tmp_path / "framework.toml")


def test_settings_of_one_task_are_no_choice_in_the_other():
    plan_of_tasks = plan("torch", networks="resnet50", tuning="each", task="training,inference")
    tried = {task: set() for task in ("training", "inference")}
    for cell in plan_of_tasks.cells:
        tried[cell.task] |= set(plan_of_tasks.tunable(cell))
    assert tried["training"] - tried["inference"] == {"fused_update"}
    assert tried["inference"] - tried["training"] == {"folded_norm"}
    words = {
        task: {cell.tuning for cell in plan_of_tasks.cells if cell.task == task} for task in tried
    }
    assert any("fused_update" in word for word in words["training"])
    assert not any("fused_update" in word for word in words["inference"])


def test_each_setting_is_in_force_alone_and_left_out():
    words = [
        cell.tuning for cell in plan("torch,tinygrad", networks="alexnet", tuning="each").cells
    ]
    names = ("keep_heap", "fused_update", "channels_last")
    assert words == [
        INSTALLED,
        *(f"installed+{name}" for name in names),
        *(f"tuned-{name}" for name in names),
        TUNED,
    ]


def test_words_that_mean_nothing_are_refused():
    for words, reported in (
        ("quick", "'quick' is not one of installed, tuned"),
        ("installed+nosuch", "No row has a setting 'nosuch'. There are torch: keep_heap"),
        ("each", "None of the selected rows has such settings"),
        (
            "tuned-channels_last",
            r"No selected cell has the setting channels_last \(--tuning tuned-channels_last\)",
        ),
        (
            "installed,tuned,installed+channels_last",
            "No selected cell has the setting channels_last",
        ),
    ):
        with pytest.raises(UsageError, match=reported):
            plan("tinygrad" if words == "each" else "torch", networks="fcn5", tuning=words)


def test_pairs_are_neighbours_in_time():
    planned = plan("torch,mxnet", networks="fcn5,lstm32,alexnet", tuning="each")
    for block in range(3):
        order = [launch.cell._replace(tuning=TUNED) for launch in planned.block(block)]
        changes = sum(before != after for before, after in pairwise(order))
        assert changes + 1 == len(set(order))
