"""Which CPUs threads are bound to, on recorded machines and on any."""

import os
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
import recorded_trees
from hypothesis import given
from hypothesis import strategies as st
from properties import examples
from recorded_trees import Tree, write_tree

from dlbench.hardware_probe import Cpu, Machine, Place, bound_mask, probe, probe_cpu


def masks(cpu: Cpu) -> list[tuple[int, ...] | None]:
    """The masks of 1, 2, ... threads until there is none."""
    found = [bound_mask(cpu, 1)]
    while found[-1] is not None:
        found.append(bound_mask(cpu, len(found) + 1))
    return found


def added(cpu: Cpu) -> list[int]:
    """The CPUs in the order in which more threads bring them in."""
    whole = [set(mask) for mask in masks(cpu) if mask is not None]
    assert all(len(mask) == count for count, mask in enumerate(whole, 1))
    return [(mask - before).pop() for before, mask in zip([set(), *whole[:-1]], whole, strict=True)]


def masked(tree: Tree, cpus: str) -> Tree:
    return tree | {"proc/self/status": f"Cpus_allowed_list:\t{cpus}\n"}


def test_a_server_of_two_sockets_fills_one_first_and_takes_smt_siblings_last(tmp_path: Path) -> None:
    cpu = probe_cpu(write_tree(tmp_path, recorded_trees.xeon()))
    assert [place.socket for place in cpu.core_places] == [0] * 8 + [1] * 8
    assert [place.node for place in cpu.core_places] == [0] * 8 + [1] * 8
    assert bound_mask(cpu, 1) == (0,)
    assert bound_mask(cpu, 8) == tuple(range(8))
    assert bound_mask(cpu, 12) == tuple(range(12))
    assert bound_mask(cpu, 18) == (*range(16), 16, 17)
    assert bound_mask(cpu, 32) == tuple(range(32))
    assert bound_mask(cpu, 33) is None


def test_the_socket_with_more_usable_cores_comes_first(tmp_path: Path) -> None:
    # A batch system gave two cores of the first socket and four of the second, both siblings of one.
    cpu = probe_cpu(write_tree(tmp_path, masked(recorded_trees.xeon(), "3,5,8-11,24")))
    assert added(cpu) == [8, 9, 10, 11, 3, 5, 24]


def test_nodes_of_a_socket_are_filled_one_by_one(tmp_path: Path) -> None:
    # Two nodes in each of two sockets, numbered across the sockets.
    cpu = probe_cpu(write_tree(tmp_path, recorded_trees.xeon(smt=1)))
    places = tuple(Place(core // 8, core // 8 + 2 * (core % 2), 0) for core in range(16))
    assert added(replace(cpu, core_places=places)) == [0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15]


@pytest.mark.parametrize("named", [True, False])
def test_a_hybrid_laptop_takes_its_fast_cores_first_then_the_slow_then_siblings(tmp_path: Path, named: bool) -> None:
    cpu = probe_cpu(write_tree(tmp_path, recorded_trees.hybrid_laptop(named)))
    assert [place.kind for place in cpu.core_places] == [0] * 4 + [1] * 8
    assert added(cpu) == [0, 2, 4, 6, *range(8, 16), 1, 3, 5, 7]


def test_a_container_with_a_mask_gets_no_other_cpu(tmp_path: Path) -> None:
    cpu = probe_cpu(write_tree(tmp_path, masked(recorded_trees.container_v2(), "2-3,6")))
    assert added(cpu) == [2, 6, 3]
    assert bound_mask(cpu, 4) is None


def test_the_quota_is_no_mask(tmp_path: Path) -> None:
    cpu = probe_cpu(write_tree(tmp_path, recorded_trees.container_v2()))
    assert cpu.quota_cpus == 1.5
    assert bound_mask(cpu, 4) == (0, 2, 4, 6)


def test_topology_from_proc_alone(tmp_path: Path) -> None:
    tree = {name: text for name, text in recorded_trees.xeon().items() if not name.startswith("sys/")}
    assert bound_mask(probe_cpu(write_tree(tmp_path, tree)), 17) == tuple(range(17))


def test_a_record_of_an_older_version_is_bound_by_cores_alone(tmp_path: Path) -> None:
    machine = probe(write_tree(tmp_path, recorded_trees.xeon()))
    record = machine.to_dict()
    assert Machine.from_dict(record) == machine
    del record["cpu"]["core_places"]
    old = Machine.from_dict(record)
    assert old.fingerprint == machine.fingerprint
    assert bound_mask(old.cpu, 17) == tuple(range(17))


@examples(40)
@given(st.data(), st.integers(1, 3), st.integers(1, 5), st.integers(1, 3))
def test_every_mask_is_part_of_the_next_and_cores_come_before_siblings(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, sockets: int, cores: int, smt: int
) -> None:
    tree = recorded_trees.xeon(sockets, cores, smt)
    whole = probe_cpu(write_tree(tmp_path_factory.mktemp("tree"), tree))
    chosen = data.draw(st.sets(st.sampled_from(whole.affinity), min_size=1))
    cpu = replace(whole, affinity=tuple(sorted(chosen)))
    order = added(cpu)
    assert sorted(order) == sorted(chosen)
    core_of = {sibling: core for core in cpu.core_siblings for sibling in core}
    assert len({core_of[each] for each in order[: cpu.usable_physical_cores]}) == cpu.usable_physical_cores
    socket_of = dict(zip(cpu.core_siblings, (place.socket for place in cpu.core_places), strict=True))
    seen = [socket_of[core_of[each]] for each in order[: cpu.usable_physical_cores]]
    assert seen == sorted(seen, key=seen.index)  # one socket, then the next


@examples(40)
@given(st.data(), st.integers(1, 3), st.integers(1, 5), st.integers(1, 3), st.integers(2, 4))
def test_workers_get_the_same_cpus_and_share_as_few_cores_as_can_be(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, sockets: int, cores: int, smt: int, workers: int
) -> None:
    cpu = probe_cpu(write_tree(tmp_path_factory.mktemp("tree"), recorded_trees.xeon(sockets, cores, smt)))
    each = data.draw(st.integers(0, len(cpu.affinity) // workers))
    if not each:
        return
    mask, alone = bound_mask(cpu, each * workers, workers), bound_mask(cpu, each * workers)
    assert mask is not None
    assert alone is not None
    assert sorted(mask) == list(alone)
    parts = [cores_of(cpu, mask[worker * each : (worker + 1) * each]) for worker in range(workers)]
    groups = [len(set(core) & set(alone)) for core in cpu.core_siblings if set(core) & set(alone)]
    if set(groups) == {1} or (len(set(groups)) == 1 and each % groups[0] == 0):
        assert sum(map(len, parts)) == len(set().union(*parts))  # nobody shares a core where nobody need


def cores_of(cpu: Cpu, cpus: Iterable[int]) -> set[tuple[int, ...]]:
    return {core for core in cpu.core_siblings if set(core) & set(cpus)}


@pytest.mark.parametrize("threads", [2, 4, 6, 8])
def test_two_workers_do_not_share_cores(tmp_path: Path, threads: int) -> None:
    cpu = probe_cpu(write_tree(tmp_path, recorded_trees.xeon(1, 4, 2)))
    mask = bound_mask(cpu, threads, 2)
    assert mask is not None
    assert not cores_of(cpu, mask[: threads // 2]) & cores_of(cpu, mask[threads // 2 :])


def test_no_threads_cannot_be_bound(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="1 or more"):
        bound_mask(probe_cpu(write_tree(tmp_path, recorded_trees.arm())), 0)


@pytest.mark.skipif(sys.platform != "linux", reason="binds this process")
def test_the_masks_of_this_machine_can_be_set() -> None:
    before = os.sched_getaffinity(0)
    try:
        for mask in masks(probe_cpu())[:-1]:
            assert mask is not None
            os.sched_setaffinity(0, mask)
            assert os.sched_getaffinity(0) == set(mask)
            os.sched_setaffinity(0, before)
    finally:
        os.sched_setaffinity(0, before)
