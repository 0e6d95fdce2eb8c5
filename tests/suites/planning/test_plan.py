"""Plans: what is measured, and in which order."""

from pathlib import Path

import pytest
from fake_nvml import TWO, gpus
from hypothesis import given
from hypothesis import strategies as st

from dlbench.suites.errors import UsageError
from dlbench.suites.planning import suite, values
from dlbench.suites.planning.axes import SuiteOverrides
from dlbench.suites.planning.framework import find
from dlbench.suites.planning.plan import expand, group_of, sizes_of
from dlbench.suites.planning.values import Capacity

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


def plan_of(choices=AS_THE_SUITE_SAYS, seed=1, of=QUICK, machine=MACHINE):
    return expand(of, choices, machine, seed)


@given(choices_of_a_user, seeds)
def test_each_block_launches_each_cell_once_in_an_order_that_the_seed_makes_again(choices, seed):
    plan = plan_of(choices, seed)
    order = list(plan.order())
    assert len(set(plan.cells)) == len(plan.cells)
    assert len(order) == plan.launches * len(plan.cells)
    for block in range(plan.launches):
        part = order[block * len(plan.cells) : (block + 1) * len(plan.cells)]
        assert {planned.block for planned in part} == {block}
        assert sorted(planned.cell for planned in part) == sorted(plan.cells)
    assert list(plan_of(choices, seed).order()) == order


@given(choices_of_a_user, seeds)
def test_in_the_first_block_the_fewest_threads_of_a_group_come_first(choices, seed):
    plan = plan_of(choices, seed)
    first = {}
    for planned in plan.order():
        first.setdefault(group_of(planned.cell), planned.cell)
    for group, cell in first.items():
        assert cell.threads == min(c.threads for c in plan.cells if group_of(c) == group)


def values_of(plan, field):
    return {getattr(cell, field) for cell in plan.cells}


@pytest.mark.parametrize(
    ("choices", "field", "expected"),
    [
        (SuiteOverrides(networks="resnet50"), "network", {"resnet50"}),  # beyond the suite's own networks too
        (SuiteOverrides(frameworks="torch:compile"), "mode", {"compile"}),
        (SuiteOverrides(threads="3,5-6"), "threads", {3, 5, 6}),
        (SuiteOverrides(threads="2*cpus"), "threads", {8}),
        (SuiteOverrides(batch_sizes="16,64"), "batch_size", {16, 64}),
        (SuiteOverrides(devices="cuda:all"), "device", {"cuda:0", "cuda:1"}),
        (SuiteOverrides(devices="cuda:0"), "threads", {2}),  # the cores
        (SuiteOverrides(devices="cuda:0", device_threads="1"), "threads", {1}),
        (SuiteOverrides(devices="cuda:0", precisions="tf32,float16"), "precision", {"tf32", "float16"}),
        (SuiteOverrides(devices="cuda:0", placements="pinned,pageable"), "placement", {"pinned", "pageable"}),
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
    order = list(plan_of(choices, seed).order())
    groups = {}
    for planned in order[: len(order) // 2]:
        groups.setdefault(sizes_of(planned.cell), []).append(planned.cell.batch_size)
    assert all(found == sorted(found) for group, found in groups.items() if not group.on_cpu)
    # The groups themselves stay mixed.
    assert len({planned.cell.device for planned in order[:12]}) > 1


def test_a_mode_of_gpus_only_has_cells_there_alone():
    plan = plan_of(SuiteOverrides(networks="fcn5", frameworks="torch:*", devices="cpu,gpus", threads="1"))
    modes = find("torch").modes
    for mode, about in modes.items():
        kinds = {"cpu" if cell.on_cpu else "gpu" for cell in plan.cells if cell.mode == mode}
        assert kinds == (set() if about.families else set(about.devices))
    only_there = next(mode for mode, about in modes.items() if about.devices == ("gpu",))
    with pytest.raises(UsageError, match=f"torch {only_there}: not a mode of cpu"):
        plan_of(SuiteOverrides(frameworks=f"torch:{only_there}"))


def test_the_suites_threads_keep_to_its_limit():
    assert values_of(plan_of(of=TABLE, machine=Capacity(2, 4)), "threads") == {1, 2, 4, 8, 16}
    assert values_of(plan_of(SuiteOverrides(threads_limit="2"), of=TABLE, machine=Capacity(2, 4)), "threads") == {1, 2}
    with pytest.raises(UsageError, match="Raise --threads-limit"):
        plan_of(SuiteOverrides(threads="8", threads_limit="4"))


@pytest.mark.parametrize(
    ("name", "launches", "interval", "expected"),
    [
        ("quick", None, None, (1, 1, None)),
        ("quick", 5, None, (5, 5, None)),
        ("quick", "5-20", None, (5, 20, 0.02)),
        ("quick", None, "1%", (5, 20, 0.01)),
        ("quick", "3-8", "5%", (3, 8, 0.05)),
        ("threads", None, None, (3, 10, 0.02)),
        ("threads", None, "1%", (3, 10, 0.01)),
    ],
)
def test_launches_and_interval_of_a_fixed_suite_and_of_one_with_a_range(name, launches, interval, expected):
    plan = plan_of(SuiteOverrides(launches=launches, interval=interval), of=suite.load(name))
    assert (plan.launches, plan.most, plan.interval) == expected


@given(choices_of_a_user, st.sampled_from(["", "oversubscribed", "bound", "bound,oversubscribed"]))
def test_bound_cells_need_as_many_cpus_as_threads(choices, affinity):
    asked = choices.but(affinity=affinity or None)
    everything = plan_of(choices.but(affinity="oversubscribed"))
    plan = plan_of(asked, machine=Capacity(1, 2, MACHINE.gpus)) if "1" in asked["threads"] else plan_of(asked)
    limit = 2 if "1" in asked["threads"] else MACHINE.cpus
    words = affinity.split(",") if affinity else ["oversubscribed"]
    assert {cell.affinity for cell in plan.cells} <= set(words)
    assert all(cell.affinity == "bound" and cell.threads > limit for cell in plan.left_out)
    assert all(cell.threads <= limit for cell in plan.cells if cell.affinity == "bound")
    if "1" in asked["threads"]:
        # The same thread counts in each mode, but for those left out.
        assert len(plan.cells) + len(plan.left_out) == len(words) * len(everything.cells)


@pytest.mark.parametrize(
    ("choices", "remedy"),
    [
        (SuiteOverrides(frameworks="null:fast"), "It has: null"),
        (SuiteOverrides(frameworks="reference"), "There is no framework"),
        (
            SuiteOverrides(frameworks="torch-nightl", builds=(values.build("torch-nightly:torch=/x"),)),
            "'torch-nightly'?",
        ),
        (SuiteOverrides(batch_sizes="1000001"), "1000000"),
        (SuiteOverrides(devices="cuda:0", threads="1"), "--device-threads"),
        (SuiteOverrides(placements="pinned"), "Name a GPU"),
        (SuiteOverrides(launches=0), "1 to 1000000"),
        (SuiteOverrides(interval="1%", launches="5"), "needs a range of launches"),
        (SuiteOverrides(affinity="bound", threads="5,6"), "This machine has 4 CPUs to bind threads to"),
        (SuiteOverrides(builds=(values.build("a:torch=/x"),) * 2), "Give them different names"),
        (SuiteOverrides(steps=0), "from 1"),
    ],
)
def test_a_wrong_choice_is_refused_with_the_remedy(choices, remedy):
    with pytest.raises(UsageError) as caught:
        plan_of(choices)
    assert remedy in str(caught.value)


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
        ("torch", {("torch", "eager"), ("torch-nightly", "eager")}),  # typed, so never ignored in silence
        ("torch-nightly", {("torch-nightly", "eager")}),
        ("torch-nightly:compile,null", {("torch-nightly", "compile"), ("null", "null")}),
    ],
)
def test_a_build_joins_the_frameworks_that_were_typed(frameworks, rows):
    plan = plan_of(SuiteOverrides(frameworks=frameworks, builds=(NIGHTLY,)))
    assert {(cell.framework, cell.mode) for cell in plan.cells} == rows
