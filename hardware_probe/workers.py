"""Runs this room's measuring programs, each by path in a fresh interpreter: thread pools are sized once, at import."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

# Every variable that a BLAS or OpenMP runtime of NumPy may read.
THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)

# Variables that hold a BLAS to older instructions than the CPU has. A user may have reasons for them, but what is
# measured here is the machine: with OPENBLAS_CORETYPE=Haswell left in place, a CPU with AVX-512 showed half its rate.
RESTRAINING_VARIABLES = (
    "OPENBLAS_CORETYPE",
    "OPENBLAS_L2_SIZE",
    "MKL_ENABLE_INSTRUCTIONS",
    "MKL_CBWR",
    "BLIS_ARCH_TYPE",
)


class WorkerFailed(Exception):  # noqa: N818 - whoever asked for the measurement raises an error of its own
    """The program wrote no result; the text is its exit status and its last words."""


def run(worker: Path, request: dict[str, Any], folder: Path, python: str | Path, timeout_seconds: float) -> Any:
    """Run ``python -I worker REQUEST.json RESULT.json`` in this folder and return what it wrote.

    The request holds "threads", and what else the program asks for. Raises WorkerFailed, subprocess.TimeoutExpired, and
    OSError where the interpreter cannot be started.
    """
    environment = {name: value for name, value in os.environ.items() if name not in RESTRAINING_VARIABLES}
    environment.update(dict.fromkeys(THREAD_VARIABLES, str(request["threads"])))
    # Else a runtime may decide for fewer threads on a machine that it finds loaded.
    environment.update(OMP_DYNAMIC="FALSE", MKL_DYNAMIC="FALSE")
    request_path, result_path = folder / "request.json", folder / "result.json"
    request_path.write_text(json.dumps(request))
    # Standard error goes through a pipe, so that this process sleeps in the kernel until the end; waiting with a
    # time-out and no pipe would wake up again and again beside the measurement.
    process = subprocess.run(
        [str(python), "-I", str(worker), str(request_path), str(result_path)],
        env=environment,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        timeout=timeout_seconds,
        check=False,
    )
    if not result_path.exists():
        last_words = process.stderr.decode("utf-8", "replace").strip().splitlines()[-1:] or ["no message"]
        raise WorkerFailed(f"(exit status {process.returncode}): {last_words[0]}")
    return json.loads(result_path.read_text(encoding="utf-8"))
