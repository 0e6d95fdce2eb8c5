"""`dlbench doctor` as people and scripts meet it."""

import json
import shlex
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from processes import run_command

from dlbench.hardware_probe.doctor import Finding, Remedy, Severity
from dlbench.suites.commands import doctor as cli_doctor
from dlbench.suites.commands.doctor import folded, show, summary
from dlbench.suites.run import machine_lock

pytestmark = pytest.mark.alone

GOVERNOR = Finding(
    "governor",
    "Frequency governor",
    Severity.HARMS,
    "powersave",
    "Any but `performance` lets the clock follow the load, so that the same step takes longer after a pause.",
    Remedy(
        "Set it, until the next boot.",
        "echo performance | sudo tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor",
        needs_root=True,
    ),
)
VIRTUAL = Finding("virtual_machine", "Virtual machine", Severity.MAY_HARM, "yes", "Why.", Remedy("Nothing mends it."))
TURBO = Finding("turbo", "Turbo frequencies", Severity.UNKNOWN, "hidden [by] the host", "Why not told.")
SWAP = Finding("swap", "Swap", Severity.FINE, "none", "Why fine.")


def test_the_command_on_this_machine(tmp_path: Path) -> None:
    ended = run_command(tmp_path, "doctor", "--json", TMPDIR=str(tmp_path), OMP_NUM_THREADS="3")
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr.splitlines() == ["looking at this machine for some seconds (5 readings)"]
    told = json.loads(ended.stdout)
    assert len(told["readings"]) == 5
    names = [finding["name"] for finding in told["findings"]]
    assert len(names) == len(set(names))
    assert {"others", "repeatability", "cpu_quota", "governor", "memory", "variables"} <= set(names)
    assert sum(told["counts"].values()) == len(names)
    seen = {finding["name"]: finding["seen"] for finding in told["findings"]}
    assert "OMP_NUM_THREADS" in seen["variables"]


def test_a_measurement_is_left_in_peace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DLBENCH_LOCK_FOLDER", str(tmp_path))
    with machine_lock.measuring(pytest.fail):
        ended = run_command(tmp_path, "doctor", DLBENCH_LOCK_FOLDER=str(tmp_path))
    assert ended.returncode == 0
    assert "looking" not in ended.stderr
    told = " ".join(ended.stdout.partition("Unknown")[2].split())
    assert "Current load: Another dlbench (process" in told
    assert "is measuring on this machine" in told
    assert "CPU quota" in ended.stdout  # what needs no sample is told all the same


def test_what_people_read(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli_doctor.out, "_width", 80)
    show((GOVERNOR, VIRTUAL, TURBO, SWAP))
    assert capsys.readouterr().out == (
        "On this machine 1 thing harms measurement and 1 may. Nothing was changed.\n"
        "\n"
        "Harms measurement\n"
        "  Frequency governor: powersave\n"
        "    Any but `performance` lets the clock follow the load, so that the same step\n"
        "    takes longer after a pause.\n"
        "    -> Set it, until the next boot. Needs root.\n"
        "         echo performance | sudo tee \\\n"
        "           /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor\n"
        "\n"
        "May harm\n"
        "  Virtual machine: yes\n"
        "    Why.\n"
        "    -> Nothing mends it.\n"
        "\n"
        "Unknown\n"
        "  Turbo frequencies: hidden [by] the host\n"
        "\n"
        "Fine\n"
        "  Swap: none\n"
    )


@pytest.mark.parametrize(
    ("findings", "said"),
    [
        ((SWAP, TURBO), "Nothing found on this machine that harms measurement."),
        ((GOVERNOR,), "On this machine 1 thing harms measurement. Nothing was changed."),
        ((GOVERNOR, GOVERNOR, VIRTUAL), "On this machine 2 things harm measurement and 1 may. Nothing was changed."),
        ((VIRTUAL,), "On this machine 1 thing may harm measurement. Nothing was changed."),
        ((VIRTUAL, VIRTUAL), "On this machine 2 things may harm measurement. Nothing was changed."),
    ],
)
def test_the_summary(findings: tuple[Finding, ...], said: str) -> None:
    assert summary(findings) == said


words = st.text(st.sampled_from("abc/-*.=|"), min_size=1, max_size=60)


@given(st.lists(words, min_size=1, max_size=12), st.integers(20, 80))
def test_a_folded_command_is_the_same_to_a_shell(parts: list[str], width: int) -> None:
    command = " ".join(parts)
    lines = folded(command, width)
    assert shlex.split("\n".join(lines).replace("\\\n", "")) == shlex.split(command)
    assert all(len(line) <= width or len(line.split()) <= 2 for line in lines)
