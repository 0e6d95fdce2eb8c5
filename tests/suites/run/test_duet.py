"""Duet pairs: where they can be, and two real launches of the null framework at the same time."""

import contextlib
import os
import socket
import sys
import threading
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import recorded_trees
from hypothesis import given
from hypothesis import strategies as st
from made_up_pythons import script
from processes import PATIENCE, null_cell, plan_of
from properties import examples
from recorded_trees import write_tree

from dlbench.adapters.protocol import BEGIN, END, Cell, Status
from dlbench.hardware_probe import Cpu, probe, probe_cpu
from dlbench.reports.compare.comparison import common_time
from dlbench.reports.storage.record import BASELINE, CANDIDATE, Record, Run
from dlbench.suites.environments.environment import Source
from dlbench.suites.errors import UsageError
from dlbench.suites.planning.plan import PlannedLaunch
from dlbench.suites.run.duet import masks_of
from dlbench.suites.run.launch import LaunchRunner, run_attempts
from dlbench.suites.run.launcher import LaunchMonitor, Meeting, launch_process
from dlbench.suites.run.pairing import Pairing, choose

MACHINE = probe()
two_cpus = pytest.mark.skipif(
    isinstance(masks_of(null_cell(), MACHINE.cpu), str), reason="two launches cannot run at once on this machine"
)


@examples(40)
@given(st.data(), st.sampled_from(sorted(recorded_trees.ALL)), st.integers(1, 9), st.integers(1, 3))
def test_the_sides_of_a_duet_share_no_core(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, name: str, threads: int, workers: int
) -> None:
    cpu = probe_cpu(write_tree(tmp_path_factory.mktemp("tree"), recorded_trees.ALL[name]()))
    allowed = data.draw(st.sets(st.sampled_from(cpu.affinity), min_size=1))
    cpu = replace(cpu, affinity=tuple(sorted(allowed)))
    found = masks_of(null_cell(threads=threads, world_size=workers), cpu)
    if isinstance(found, str):
        assert found
        return
    sides = [{core for core in cpu.core_siblings for number in side if number in core} for side in found]
    assert all(len(side) == len(set(side)) == threads * workers for side in found)
    assert set(found[0]) | set(found[1]) <= allowed
    assert not sides[0] & sides[1]
    assert 2 * threads * workers <= cpu.capacity_cpus
    if cpu.core_places:
        kind = {core: place["kind"] for core, place in zip(cpu.core_siblings, cpu.core_places, strict=True)}
        assert sorted(kind[core] for core in sides[0]) == sorted(kind[core] for core in sides[1])


SMT = {"sockets": 1, "cores": 2}


@pytest.mark.parametrize(
    ("changes", "cell", "reason"),
    [
        ({"affinity": (0,)}, null_cell(), "both sides need 2 CPUs and may use 1"),
        ({}, null_cell(threads=3), "both sides need 6 CPUs and may use 4"),
        ({"affinity": (0, 2)}, null_cell(), "2 CPUs here are SMT siblings on 1"),
        ({}, null_cell(threads=2), "4 CPUs here are SMT siblings on 2"),
        ({"quota_cpus": 1.5}, null_cell(), "a quota of 1.5"),
        ({}, null_cell(device="cuda:0"), "GPU"),
    ],
)
def test_why_both_sides_cannot_run_at_once(tmp_path: Path, changes: dict[str, Any], cell: Cell, reason: str) -> None:
    cpu: Cpu = probe_cpu(write_tree(tmp_path, recorded_trees.xeon(**SMT)))
    found = masks_of(cell, replace(cpu, **changes))
    assert isinstance(found, str)
    assert reason in found


def test_cells_that_cannot_be_a_duet_are_named_and_an_error_where_none_can(tmp_path: Path) -> None:
    cpu = probe_cpu(write_tree(tmp_path, recorded_trees.xeon(**SMT)))
    small, large = null_cell(), null_cell(threads=2)
    chosen = choose("duet", [small, large], cpu)
    (line,) = chosen.remarks
    assert set(chosen.duets) == {small}
    assert "2 threads" in line
    assert choose("sequential", [small, large], cpu) == Pairing()
    with pytest.raises(UsageError, match="No cell can be measured in duet pairs"):
        choose("duet", [large], cpu)


def monitor(meeting: Meeting | None) -> tuple[LaunchMonitor, socket.socket]:
    """Return a monitor that listens in a thread of its own, and the guest's end of its line."""
    ours, guest = socket.socketpair()
    made = LaunchMonitor(ours, os.getpid(), (), meeting)
    ours.setblocking(True)

    def listen() -> None:
        with contextlib.suppress(OSError):
            while made.listen():
                pass

    threading.Thread(target=listen, daemon=True).start()
    guest.settimeout(0.3)
    return made, guest


@pytest.mark.parametrize("words", [[BEGIN], [BEGIN, f"{END} 4"]])
def test_a_guest_is_answered_when_the_other_has_come_or_is_gone(words: list[str]) -> None:
    meeting = Meeting(2)
    (first, one), (_, other) = monitor(meeting), monitor(meeting)
    *before, last = words
    for word in before:
        for guest in (one, other):
            guest.sendall(word.encode() + b"\n")
        assert [guest.recv(10) for guest in (one, other)] == [b"{}\n"] * 2
    one.sendall(last.encode() + b"\n")
    with pytest.raises(TimeoutError):
        one.recv(10)
    other.sendall(last.encode() + b"\n")
    assert [guest.recv(10) for guest in (one, other)] == [b"{}\n"] * 2
    assert first.held_seconds > 0.2  # the guest waited for 0.3 s, the monitor from when it had read the word
    third, alone = monitor(broken := Meeting(2))
    alone.sendall(BEGIN.encode() + b"\n")
    broken.abort()
    assert alone.recv(10) == b"{}\n"
    assert not third.wrong


PLAN = plan_of(networks="fcn5", frameworks="null", threads="1")
PROTOCOL = PLAN.protocol._replace(warmup_steps=2, steps=20, minimum_steps=2, seconds=0.5, maximum_warmup_steps=0)


def duet(folder: Path, bodies: dict[str, str], limits: dict[str, float] | None = None) -> list[Record]:
    """Return the records of a duet; each side's guest is a shell script that may do something first."""
    (row,) = PLAN.rows
    run = Run("r1", "quick", PROTOCOL, 1, PLAN.cells, "machine-1", datetime.now(UTC), "9", None, 1)
    runners = {}
    for side, body in bodies.items():
        limit = (limits or {}).get(side, PATIENCE)
        plan = replace(PLAN, cell_seconds=limit, settings={"null": {"step_seconds": 0.01}})
        path = None if body == "missing" else script(folder / side, f'#!/bin/sh\n{body}\nexec {sys.executable} "$@"\n')
        source = {"null": Source(row.build, path, "CPython 3", "env-1", "" if path else "not built")}
        runners[side] = LaunchRunner(plan, run, launch_process, source, lambda cell: None, machine=MACHINE)
    masks = masks_of(PLAN.cells[0], MACHINE.cpu)
    assert not isinstance(masks, str)
    pair = [PlannedLaunch(PLAN.cells[0], 0, side, cpus) for side, cpus in zip(bodies, masks, strict=True)]
    (records,) = run_attempts(runners, pair, lambda cell: PROTOCOL)
    return records


def ended(records: list[Record]) -> list[Status]:
    return [record.outcome.status for record in records]


@two_cpus
def test_both_launches_are_timed_at_once_on_other_cpus_however_late_one_starts(
    tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setenv("DLBENCH_HOME", str(tmp_path))
    # The early one waits for longer than a launch may last: that is not its own time.
    records = duet(tmp_path, {BASELINE: "", CANDIDATE: "sleep 6"}, {BASELINE: 5.0})
    assert ended(records) == [Status.OK, Status.OK]
    begin, end = common_time(*records) or (0.0, 0.0)
    assert end - begin > 0.1
    first, second = (record.outcome.cpus or [] for record in records)
    assert len(first) == len(second) == 1
    assert first != second
    assert [record.side for record in records] == [BASELINE, CANDIDATE]


@two_cpus
@pytest.mark.parametrize(("body", "status"), [("exit 3", Status.CRASHED), ("missing", Status.SKIPPED)])
def test_a_side_without_a_number_does_not_hold_up_the_other(
    tmp_path: Path, monkeypatch: Any, body: str, status: Status
) -> None:
    monkeypatch.setenv("DLBENCH_HOME", str(tmp_path))
    assert ended(duet(tmp_path, {BASELINE: "", CANDIDATE: body})) == [Status.OK, status]
