"""The sentinel, really run: what it tells, and what it says where it cannot."""

import json
import os
import resource
import sys
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from dlbench.hardware_probe import sentinel
from dlbench.hardware_probe.sentinel import Reading, SentinelError, take


def test_a_real_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")  # must not reach the worker
    reading = take()
    # Even a slow, loaded machine is within these.
    assert 1e7 < reading.gemm_flops_per_second < 1e14
    assert 1e7 < reading.bandwidth_bytes_per_second < 1e13
    for share in (reading.waiting_share, reading.steal_share, reading.pressure_share, reading.pressure_avg10):
        assert share is None or 0 <= share <= 1
    assert reading.cpus > 0
    assert abs(datetime.now(UTC) - datetime.fromisoformat(reading.taken)) < timedelta(minutes=2)
    told = json.dumps(reading.to_dict(), allow_nan=False)
    assert str(Path.home()) not in told
    assert Reading.from_dict(json.loads(told)) == reading
    # Linux tells these wherever dlbench's own continuous integration runs.
    if Path("/proc/thread-self/schedstat").exists():
        assert reading.waiting_share is not None
    if Path("/proc/stat").exists():
        assert reading.others_cpus is not None
        assert reading.others_cpus <= (os.cpu_count() or 1) + 1


def test_the_reading_leaves_this_process_small() -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    take()
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 8 * 1024  # KiB; the arrays alone are 32 MB at least


@pytest.mark.parametrize(
    ("cache", "total"), [(0, 32_000_000), (1 << 20, 32_000_000), (32 << 20, 3 * (32 << 20)), (1 << 30, 128_000_000)]
)
def test_arrays_exceed_the_caches_and_stay_small(cache: int, total: int) -> None:
    assert 2 * sentinel._array_bytes(cache) == total


def test_a_reading_with_missing_fields_is_refused() -> None:
    with pytest.raises(ValueError, match="bandwidth_bytes_per_second"):
        Reading.from_dict({"gemm_flops_per_second": 1.0})


def test_no_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(SentinelError, match="cannot be started"):
        take()


def test_no_room_for_temporary_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    with pytest.raises(SentinelError, match="temporary files: No such file"):
        take()


@pytest.mark.parametrize(
    ("statement", "words"),
    [("raise SystemExit('no room for arrays')", "no room for arrays"), ("import time; time.sleep(60)", "too busy")],
)
def test_a_worker_that_fails_or_a_machine_far_too_busy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, statement: str, words: str
) -> None:
    worker = tmp_path / "worker.py"
    worker.write_text(statement)
    monkeypatch.setattr(sentinel, "WORKER", worker)
    with pytest.raises(SentinelError, match=words):
        take(timeout_seconds=0.5 if words == "too busy" else 60.0)
