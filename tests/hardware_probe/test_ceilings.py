"""Measured ceilings: really measured at a small size, and looked up."""

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up_pythons import script

from dlbench.hardware_probe import Ceiling, Ceilings, ProbeError, measure
from dlbench.hardware_probe.ceilings import WORKER

MIB = 1024**2


def ceiling(threads: int, gemm: float = 1e9, bandwidth: float = 1e9) -> Ceiling:
    return Ceiling(
        threads=threads,
        gemm_flops_per_second=gemm,
        bandwidth_bytes_per_second=bandwidth,
        gemm_samples=(gemm, gemm / 2),
        bandwidth_samples=(bandwidth,),
        gemm_order=512,
        gemm_cpus_busy=0.99 * threads,
        bandwidth_cpus_busy=0.97 * threads,
        cpus_available=64.0,
        array_bytes=64 * MIB,
        numpy="2.0.0",
        blas=None,
        blas_threads=None,
    )


def test_measured_for_real(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")  # must not reach the worker
    ceilings = measure([2, 1, 1], seconds=0.05, array_bytes=4 * MIB, largest_order=256)
    assert [ceiling.threads for ceiling in ceilings.measured] == [1, 2]
    for ceiling in ceilings.measured:
        # Even a slow, loaded machine is within these.
        assert 1e6 < ceiling.gemm_flops_per_second < 1e15
        assert 1e6 < ceiling.bandwidth_bytes_per_second < 1e14
        assert ceiling.gemm_flops_per_second == max(ceiling.gemm_samples)
        assert ceiling.bandwidth_bytes_per_second == max(ceiling.bandwidth_samples)
        assert min(len(ceiling.gemm_samples), len(ceiling.bandwidth_samples)) >= 3
        assert (ceiling.gemm_order, ceiling.array_bytes) == (256, 4 * MIB)
        assert 0 < ceiling.gemm_cpus_busy <= ceiling.threads * 1.5
        assert 0 < ceiling.bandwidth_cpus_busy <= ceiling.threads * 1.5
        assert ceiling.cpus_available > 0
        # threadpoolctl is among the project's requirements, and knows NumPy's own BLAS.
        assert ceiling.blas_threads is None or ceiling.blas_threads <= ceiling.threads
    text = json.dumps(ceilings.to_dict(), allow_nan=False)
    assert os.sep not in text  # no path
    assert Ceilings.from_dict(json.loads(text)) == ceilings


@given(
    rates=st.dictionaries(
        st.integers(1, 64),
        st.tuples(st.floats(1, 1e15), st.floats(1, 1e13)),
        min_size=1,
        max_size=8,
    )
)
def test_a_ceiling_never_falls(rates: dict[int, tuple[float, float]]) -> None:
    ceilings = Ceilings(tuple(ceiling(threads, *rates[threads]) for threads in sorted(rates)))
    for look_up in (ceilings.gemm_flops_per_second, ceilings.bandwidth_bytes_per_second):
        heights = [height for threads in range(66) if (height := look_up(threads)) is not None]
        assert heights == sorted(heights)
        assert len(heights) == 66 - min(rates)
    for threads, (gemm, bandwidth) in rates.items():
        assert (ceilings.gemm_flops_per_second(threads) or 0) >= gemm
        assert (ceilings.bandwidth_bytes_per_second(threads) or 0) >= bandwidth
    assert Ceilings.from_dict(json.loads(json.dumps(ceilings.to_dict()))) == ceilings


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            "echo 'No module named numpy' >&2; exit 1",
            r"exit status 1\): No module named numpy.*needs NumPy",
        ),
        ("kill -SEGV $$", r"exit status -11\): no message"),
        ("exec sleep 60", "longer than 0.5 s: .* too busy"),
    ],
)
def test_interpreters_that_fail(tmp_path: Path, body: str, message: str) -> None:
    with pytest.raises(ProbeError, match=message):
        measure(
            [1], python=script(tmp_path / "python", f"#!/bin/sh\n{body}\n"), timeout_seconds=0.5
        )


def test_the_worker_s_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    body = f'env > {tmp_path}/env; echo "$@" > {tmp_path}/arguments; exit 1'
    program = script(tmp_path / "python", f"#!/bin/sh\n{body}\n")
    with pytest.raises(ProbeError):
        measure([3], python=program)
    environment = (tmp_path / "env").read_text().splitlines()
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        assert f"{variable}=3" in environment
    assert not any(line.startswith("OPENBLAS_CORETYPE=") for line in environment)
    assert (tmp_path / "arguments").read_text().startswith(f"-I {WORKER} ")


def test_a_failing_thread_does_not_hang_the_worker(tmp_path: Path) -> None:
    """One of the threads finds no memory while the others wait for it at the barrier."""
    program = (
        f"import sys; sys.path.insert(0, {str(WORKER.parent)!r})\n"
        "import worker, itertools\n"
        "calls, ones = itertools.count(), worker.np.ones\n"
        "def failing(*arguments, **keywords):\n"
        "    if next(calls) == 1: raise MemoryError('one too many')\n"
        "    return ones(*arguments, **keywords)\n"
        "worker.np.ones = failing\n"
        "worker.bandwidth(2, 0.01, 1 << 20)\n"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, timeout=60, check=False
    )
    assert answer.returncode == 1
    assert b"one too many" in answer.stderr


def test_doubt() -> None:
    quiet = ceiling(4)
    assert quiet.doubt is None
    loaded = dataclasses.replace(quiet, bandwidth_cpus_busy=2.0)
    assert loaded.doubt is not None
    assert loaded.doubt.startswith("only 2 of 4 CPUs were busy during the bandwidth loop")
    assert "products" in (dataclasses.replace(quiet, gemm_cpus_busy=1.0).doubt or "")
    # More threads than CPUs: no more than the CPUs can be at work.
    assert dataclasses.replace(loaded, gemm_cpus_busy=2.0, cpus_available=2.0).doubt is None
