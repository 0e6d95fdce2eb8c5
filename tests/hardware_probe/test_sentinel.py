"""The sentinel, really run, and the kernel's counters between two snapshots."""

import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recorded_trees import write_tree

from dlbench.hardware_probe.sentinel import KernelCounters, Reading, between, snapshot, take


def test_a_real_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")  # must not reach the worker
    reading = take()
    # Even a slow, loaded machine is within these.
    assert 1e7 < reading.gemm_flops_per_second < 1e14
    assert 1e7 < reading.bandwidth_bytes_per_second < 1e13
    for share in (
        reading.waiting_share,
        reading.steal_share,
        reading.pressure_share,
        reading.pressure_avg10,
    ):
        assert share is None or 0 <= share <= 1
    assert reading.cpus > 0
    assert abs(datetime.now(UTC) - datetime.fromisoformat(reading.taken)) < timedelta(minutes=2)
    text = json.dumps(reading.to_dict(), allow_nan=False)
    assert str(Path.home()) not in text
    assert Reading.from_dict(json.loads(text)) == reading
    # Linux tells these wherever dlbench's own continuous integration runs.
    if Path("/proc/thread-self/schedstat").exists():
        assert reading.waiting_share is not None
    if Path("/proc/stat").exists():
        assert reading.others_cpus is not None
        assert reading.others_cpus <= (os.cpu_count() or 1) + 1


TICK = os.sysconf("SC_CLK_TCK")


def tree(stat: str = "", psi: str = "") -> dict[str, str]:
    return {"proc/stat": stat, "proc/pressure/cpu": psi}


def test_recorded_counters(tmp_path: Path) -> None:
    root = write_tree(
        tmp_path,
        tree(
            f"cpu  {3 * TICK} {TICK} {TICK} {90 * TICK} {5 * TICK} 0 {TICK} {2 * TICK} {TICK} 0\n"
            "cpu0 1 1 1 1 1 1 1 1\n",
            "some avg10=12.50 avg60=0.55 avg300=0.43 total=3721877\nfull avg10=1.00 avg60=0.00 "
            "avg300=0.00 total=9\n",
        ),
    )
    counters = snapshot(root)
    # Neither idle nor waiting for a disk is busy, and a guest's time stands in user already.
    assert (counters.busy, counters.stolen) == (6.0, 2.0)
    assert counters.stalled == pytest.approx(3.721877)
    assert counters.stalled_avg10 == pytest.approx(0.125)


@pytest.mark.parametrize(
    "files",
    [
        {},
        tree("cpu  1 2 3\n", "full avg10=0 total=1\n"),
        tree("cpu a b c d e f g h\n", "some avg10=x total=\n"),
        tree(),
    ],
)
def test_counters_that_the_kernel_does_not_give_are_none(
    tmp_path: Path, files: dict[str, str]
) -> None:
    counters = snapshot(write_tree(tmp_path, files))
    assert (counters.busy, counters.stolen, counters.stalled, counters.stalled_avg10) == (
        None,
        None,
        None,
        None,
    )
    assert set(between(counters, counters._replace(wall=counters.wall + 1)).values()) == {None}


counters = st.floats(0, 1e9, allow_nan=False)
snapshots = st.builds(KernelCounters, counters, counters, *[st.none() | counters] * 4)


@given(snapshots, snapshots)
def test_shares_lie_between_0_and_1(before: KernelCounters, after: KernelCounters) -> None:
    shares = between(before, after)
    for name in ("pressure_share", "steal_share"):
        assert shares[name] is None or 0 <= shares[name] <= 1
    assert shares["others_cpus"] is None or shares["others_cpus"] >= 0


@pytest.mark.skipif(not Path("/proc/stat").exists(), reason="no /proc/stat on this system")
def test_own_work_does_not_count_as_that_of_other_programs() -> None:
    before = snapshot()
    subprocess.run(
        [sys.executable, "-c", "while __import__('time').process_time() < 0.5: pass"], check=True
    )
    after = snapshot()
    mine = after.own_cpu - before.own_cpu
    assert mine >= 0.5
    busy = between(before, after._replace(own_cpu=before.own_cpu))["others_cpus"]
    others_busy = between(before, after)["others_cpus"]
    assert busy is not None
    assert others_busy is not None
    # Taking one's own work off must leave just the rest, to within the ticks that it is counted in.
    assert busy - others_busy == pytest.approx(
        min(mine / (after.wall - before.wall), busy), abs=0.05
    )
