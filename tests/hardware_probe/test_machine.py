"""The machine as a record: fingerprint, JSON, description, and what must not be in it."""

import dataclasses
import getpass
import json
import platform
import socket
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import recorded_trees
from fake_nvml import FakeNvml, board
from hypothesis import given
from hypothesis import strategies as st
from properties import examples
from recorded_trees import HOST_NAME, SERIAL, USER_NAME, write_tree

from dlbench.hardware_probe import Gpus, Machine, describe, probe
from dlbench.hardware_probe.cpu import Virtualisation
from dlbench.hardware_probe.machine import rounded_memory_gib

GIB = 1024**3


def machine_of(name: str, *boards: dict[str, Any]) -> Machine:
    with tempfile.TemporaryDirectory() as folder:
        return probe(write_tree(Path(folder), recorded_trees.ALL[name]()), FakeNvml(*boards))


XEON = machine_of("xeon", board(), board("NVIDIA H200", 141 * GIB))
NAMES = (*recorded_trees.ALL, "with_gpus", "here")


@cache
def machine(name: str) -> Machine:
    """Return one of these machines, made when it is first asked for: every worker of the tests
    reads this file."""
    if name == "with_gpus":
        return XEON
    return probe() if name == "here" else machine_of(name)


clock = st.none() | st.floats(1, 6000)


@pytest.mark.parametrize("name", NAMES)
def test_json_round_trip(name: str) -> None:
    recorded = machine(name)
    again = Machine.from_dict(json.loads(json.dumps(recorded.to_dict(), allow_nan=False)))
    assert again == recorded
    assert again.fingerprint == recorded.fingerprint == recorded.to_dict()["fingerprint"]


def test_fingerprints_tell_machines_apart() -> None:
    machines = [machine(name) for name in NAMES if name not in ("here", "container_v1")]
    assert len({described.fingerprint for described in machines}) == len(machines)
    # The same hardware seen from containers with different quotas.
    assert machine("container_v1").fingerprint == machine("container_v2").fingerprint


def test_fingerprint_is_the_one_of_earlier_versions() -> None:
    """Stored records hold it: a change here must come with a new _FINGERPRINT_VERSION."""
    assert XEON.fingerprint == "ce7b1529334f"


@given(data=st.data())
def test_fluctuating_values_do_not_move_the_fingerprint(data: st.DataObject) -> None:
    draw = data.draw
    text = st.none() | st.text(max_size=9)
    devices = tuple(
        dataclasses.replace(
            gpu,
            uuid=draw(text),
            sm_clock_max_mhz=draw(st.integers(0, 2000)),
            power_limit_watts=draw(st.floats(1, 700)),
            persistence_mode=draw(st.booleans()),
        )
        for gpu in draw(st.permutations(XEON.gpus.devices))
    )
    cpu = dataclasses.replace(
        XEON.cpu,
        frequency=dataclasses.replace(
            XEON.cpu.frequency,
            minimum_mhz=draw(clock),
            maximum_mhz=draw(clock),
            current_mhz=draw(clock),
            governor=draw(st.sampled_from([None, "powersave"])),
            boost=draw(st.booleans()),
        ),
        affinity=tuple(sorted(draw(st.sets(st.integers(0, 31), min_size=1)))),
        quota_cpus=draw(st.none() | st.floats(0.1, 64)),
        microcode=draw(text),
        virtualisation=Virtualisation("none", None, draw(st.sampled_from([None, "docker"]))),
    )
    total = XEON.memory.total_bytes
    memory = dataclasses.replace(
        XEON.memory,
        # Kernels reserve more or less of what is installed.
        total_bytes=draw(st.integers(int(total * 0.98), int(total * 1.01))),
        available_bytes=draw(st.integers(0, total)),
        swap_total_bytes=draw(st.integers(0, total)),
        transparent_huge_pages=draw(st.sampled_from(["never", None])),
    )
    changed = Machine(
        cpu=cpu,
        memory=memory,
        gpus=Gpus(devices, draw(text), draw(text), draw(text)),
        operating_system=dataclasses.replace(
            XEON.operating_system, kernel=draw(st.text()), libc=draw(text)
        ),
    )
    assert changed.fingerprint == XEON.fingerprint


@given(
    change=st.one_of(
        st.fixed_dictionaries({"model": st.text().filter(lambda name: name != XEON.cpu.model)}),
        st.fixed_dictionaries({"sockets": st.integers(3, 9)}),
        st.fixed_dictionaries({"physical_cores": st.integers(17, 99)}),
        st.fixed_dictionaries({"logical_cpus": st.integers(33, 99)}),
        st.fixed_dictionaries({"threads_per_core": st.sampled_from([1, 4, 8])}),
        st.fixed_dictionaries({"numa_nodes": st.integers(3, 16)}),
        st.fixed_dictionaries(
            {"caches": st.integers(0, 3).map(lambda keep: XEON.cpu.caches[:keep])}
        ),
        st.fixed_dictionaries(
            {"instruction_sets": st.just((*XEON.cpu.instruction_sets, "avx512f"))}
        ),
        st.fixed_dictionaries({"virtualisation": st.just(Virtualisation("vm", "KVM", None))}),
    )
)
def test_a_real_change_of_the_cpu_moves_the_fingerprint(change: dict[str, Any]) -> None:
    changed = dataclasses.replace(XEON, cpu=dataclasses.replace(XEON.cpu, **change))
    assert changed.fingerprint != XEON.fingerprint


@examples(300)
@given(
    installed=st.sampled_from(
        [1, 2, 4, 8, 12, 15, 16, 24, 30, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024]
    ),
    reserved=st.floats(0, 0.05),
)
def test_memory_rounds_to_what_is_installed(installed: int, reserved: float) -> None:
    assert rounded_memory_gib(int(installed * GIB * (1 - reserved))) == installed


@pytest.mark.parametrize("name", recorded_trees.ALL)
def test_no_record_tells_on_its_user(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module, function in ((socket, "gethostname"), (platform, "node"), (getpass, "getuser")):
        monkeypatch.setattr(module, function, lambda: HOST_NAME)
    monkeypatch.setenv("USER", USER_NAME)
    monkeypatch.setenv("HOME", f"/home/{USER_NAME}")
    machine = machine_of(name, board())
    text = json.dumps(machine.to_dict()) + str(describe(machine)) + repr(machine)
    for secret in (HOST_NAME, USER_NAME, SERIAL):
        assert secret not in text
