"""Groups of launches: cells of the same work take turns, as many as fit, and resumed runs make what
is missing."""

from collections import Counter
from dataclasses import replace

import pytest
from fake_nvml import GIB, TWO, gpus
from processes import TWO_CPUS, plan_of

from dlbench.adapters.protocol import Cell
from dlbench.hardware_probe import probe
from dlbench.reports.results.keys import column_of, row_of, work_of
from dlbench.reports.results.side_by_side import side_by_side
from dlbench.suites.planning.plan import PlannedLaunch
from dlbench.suites.run import groups
from dlbench.suites.run.groups import LONG_LAUNCH, MOST_MEMBERS, Grouping, Together, expected_peak
from dlbench.suites.run.schedules import Schedule

MACHINE = probe()
PLAN = plan_of(networks="fcn5,lstm32", frameworks="torch,tensorflow,mxnet", threads="1,2,4")
PLENTY = 10**15


def launches(plan=PLAN, block=0):
    return [PlannedLaunch(cell, block) for cell in plan.cells]


def grouping(plan=PLAN, memory=PLENTY):
    return Grouping(plan, frozenset(plan.cells), memory)


def test_cells_of_one_work_form_a_group_and_all_launches_are_made_once():
    groups_of_block = grouping().groups(launches(), {}, {})
    assert [len(group) for group in groups_of_block] == [9, 9]
    assert sorted(launch.cell for group in groups_of_block for launch in group) == sorted(
        PLAN.cells
    )
    for group in groups_of_block:
        assert len({work_of(launch.cell) for launch in group}) == 1
        assert all(launch.in_turns for launch in group)


@pytest.mark.parametrize("members", [1, 2, 4])
def test_groups_are_as_large_as_fits_into_memory(members):
    peak = max(expected_peak(PLAN, cell) for cell in PLAN.cells)
    groups_of_block = grouping(memory=members * peak).groups(launches(), {}, {})
    for group in groups_of_block:
        assert sum(expected_peak(PLAN, launch.cell) for launch in group) <= members * peak
        assert len(group) > 1 or not group[0].in_turns
    assert sum(map(len, groups_of_block)) == len(PLAN.cells)


def test_measured_peaks_replace_expected_ones():
    small = dict.fromkeys(PLAN.cells, 1000)
    assert len(grouping(memory=9000).groups(launches(), small, {})) == 2
    large = dict.fromkeys(PLAN.cells, 5000)
    assert len(grouping(memory=9000).groups(launches(), large, {})) == 18


def test_a_group_has_no_more_members_than_is_useful():
    plan = plan_of(
        networks="fcn5", frameworks="torch,tensorflow,mxnet,jax,onnxruntime", threads="1,2,4,8"
    )
    groups_of_block = grouping(plan).groups(launches(plan), {}, {})
    assert [len(group) for group in groups_of_block] == [10, 10]
    assert max(map(len, groups_of_block)) <= MOST_MEMBERS


@pytest.mark.parametrize("frameworks", ["torch,mxnet", "torch,tensorflow,mxnet"])
def test_of_a_matrix_columns_are_groups(frameworks):
    plan = plan_of(networks="fcn5,lstm32", frameworks=frameworks, threads="1,2,4")
    rows = len(frameworks.split(","))
    of_matrix = replace(grouping(plan), together=Together.COLUMN)
    for block in range(8):
        groups_of_block = of_matrix.groups(launches(plan, block), {}, {})
        assert groups_of_block == of_matrix.groups(launches(plan, block), {}, {})
        assert [len(group) for group in groups_of_block] == [rows] * 6
        assert sorted(launch.cell for group in groups_of_block for launch in group) == sorted(
            plan.cells
        )
        for group in groups_of_block:
            assert len({work_of(launch.cell) for launch in group}) == 1
            assert len({row_of(launch.cell) for launch in group}) == rows
            assert len({column_of("", launch.cell) for launch in group}) == 1


def test_under_a_quota_all_ratios_of_a_matrix_with_two_launches_a_cell_are_known():
    quota = plan_of(
        networks="fcn5", frameworks="torch,tensorflow,mxnet", threads="1,2,4", cpu_quota="1"
    )
    of_matrix = replace(grouping(quota), together=Together.COLUMN)
    cells = list(quota.cells)
    measured = []
    for block in (0, 1):
        planned = [PlannedLaunch(cell, block) for cell in cells]
        for group in of_matrix.groups(planned, {}, {}):
            measured.append({cells.index(launch.cell): 1.0 for launch in group})
    compared = side_by_side(measured, len(cells))
    assert all(compared.known(0, second) for second in range(1, len(cells)))


def test_under_a_quota_the_thread_counts_of_a_row_are_a_group():
    quota = plan_of(
        networks="fcn5", frameworks="torch,tensorflow,mxnet", threads="1,2,4", cpu_quota="1,2"
    )
    of_matrix = replace(grouping(quota), together=Together.COLUMN)
    for block in (0, 1):
        groups_of_block = of_matrix.groups(launches(quota, block), {}, {})
        assert [len(group) for group in groups_of_block] == [3] * 6
        for group in groups_of_block:
            assert {launch.cell.threads for launch in group} == {1, 2, 4}
            parts = Counter((row_of(launch.cell), launch.cell.cpu_quota) for launch in group)
            assert sorted(parts.values()) == ([3] if block == 0 else [1, 2])


def test_where_the_fastest_of_each_column_is_wanted_all_groups_are_columns():
    contest = replace(PLAN, launches=2, launches_most=12)
    of_matrix = replace(grouping(contest), together=Together.COLUMN)
    columns = []
    for block in range(4):
        for group in of_matrix.groups(launches(contest, block), {}, {}):
            columns.append((block, len({column_of("", launch.cell) for launch in group})))
    assert {count for _, count in columns} == {1}
    # Two rivals of a column are a group of their own.
    rivals = [launch for launch in launches(contest, 2) if launch.cell.framework != "mxnet"]
    assert {len(group) for group in of_matrix.groups(rivals, {}, {})} == {2}


def test_a_matrix_of_one_row_or_with_a_lonely_cell_is_not_divided():
    of_matrix = replace(grouping(), together=Together.COLUMN)
    of_torch = [
        PlannedLaunch(cell, 0)
        for cell in PLAN.cells
        if cell.framework == "torch" and cell.network == "fcn5"
    ]
    lonely_cell = next(
        cell for cell in PLAN.cells if cell.framework == "mxnet" and cell.network == "fcn5"
    )
    lonely = [*of_torch, PlannedLaunch(lonely_cell, 0)]
    for of_work in (of_torch, lonely):
        assert [len(group) for group in of_matrix.groups(of_work, {}, {})] == [len(of_work)]


def test_long_launches_and_those_that_cannot_take_turns_run_alone():
    long = PLAN.cells[0]
    groups_made = grouping().groups(launches(), {}, {long: LONG_LAUNCH + 1})
    assert [launch.cell for group in groups_made if len(group) == 1 for launch in group] == [long]
    fewer = replace(grouping(), cells=frozenset(PLAN.cells[1:]))
    alone = [group for group in fewer.groups(launches(), {}, {}) if len(group) == 1]
    assert [group[0].cell for group in alone] == [long]
    assert not alone[0][0].in_turns


def test_cells_that_compute_nothing_take_no_turns():
    plan = plan_of(networks="fcn5", frameworks="null", threads="1,2")
    assert not groups.grouping_for_plan(plan, MACHINE, None).cells
    assert groups.grouping_for_plan(PLAN, MACHINE, None).cells == frozenset(PLAN.cells)
    quota = replace(PLAN, cells=tuple(cell._replace(cpu_quota=1.0) for cell in PLAN.cells))
    assert groups.grouping_for_plan(plan, MACHINE, "turns").cells == frozenset(plan.cells)
    assert groups.grouping_for_plan(quota, MACHINE, None).cells == frozenset(quota.cells)


def test_a_schedule_divides_each_block_and_a_resumed_one_what_is_missing():
    schedule = Schedule(PLAN, (), None, grouping())
    first, second = schedule.wanted(0), schedule.wanted(1)
    assert [len(group) for group in first] == [len(group) for group in second] == [9, 9]
    order: list[Cell] = [launch.cell for group in first for launch in group]
    assert order != [launch.cell for group in second for launch in group]
    assert schedule.wanted(0) == Schedule(PLAN, (), None, grouping()).wanted(0)
    assert all(len(group) == 1 for group in Schedule(PLAN).wanted(0))


ON_GPUS = plan_of(
    "table4",
    replace(TWO_CPUS, gpus=gpus(TWO)),
    networks="fcn5",
    frameworks="torch,jax,tensorflow",
    devices="cpu,gpus",
    threads="1",
    precisions="float32,tf32",
)
WITH_GPUS = replace(MACHINE, gpus=gpus(TWO))


def test_launches_on_a_gpu_take_turns_only_if_asked():
    on_cpu = frozenset(cell for cell in ON_GPUS.cells if cell.on_cpu)
    assert 0 < len(on_cpu) < len(ON_GPUS.cells)
    assert groups.grouping_for_plan(ON_GPUS, WITH_GPUS, None).cells == on_cpu
    asked = groups.grouping_for_plan(ON_GPUS, WITH_GPUS, "turns")
    assert asked.cells == frozenset(ON_GPUS.cells)
    assert asked.remarks == ()


def test_each_gpu_has_groups_of_its_own_that_fit_into_its_memory():
    cells = [cell for cell in ON_GPUS.cells if cell.on_gpu]
    peak = max(expected_peak(ON_GPUS, cell) for cell in cells)
    for members in (1, 2, 100):
        memory = {"cuda:0": members * peak, "cuda:1": 100 * peak}
        of_gpus = replace(grouping(ON_GPUS), gpu_memory_bytes=memory)
        launched = []
        for group in of_gpus.groups([PlannedLaunch(cell, 0) for cell in cells], {}, {}):
            (device,) = {launch.cell.device for launch in group}
            needed = sum(expected_peak(ON_GPUS, launch.cell) for launch in group)
            assert needed <= memory[device] or len(group) == 1
            assert group[0].in_turns == (len(group) > 1)
            launched += [launch.cell for launch in group]
            if device == "cuda:0" and members == 1:
                assert len(group) == 1
            elif device == "cuda:1":
                assert len(group) > 1
        assert sorted(launched) == sorted(cells)


def test_processes_on_a_gpu_need_memory_of_the_machine_too():
    cells = [cell for cell in ON_GPUS.cells if cell.device == "cuda:1"]
    planned = [PlannedLaunch(cell, 0) for cell in cells]
    plenty = replace(grouping(ON_GPUS), gpu_memory_bytes={"cuda:1": PLENTY})
    assert max(map(len, plenty.groups(planned, {}, {}))) > 2
    small = replace(plenty, memory_bytes=5 * 10**9)
    assert max(map(len, small.groups(planned, {}, {}))) == 2


def test_the_memory_of_gpus_is_known_by_device():
    memory = groups.memory_of_gpus(WITH_GPUS)
    assert set(memory) == {"cuda:0", "cuda:1"}
    assert 0.5 * 80 * GIB < memory["cuda:0"] < 80 * GIB
