"""Run command lines of dlbench in this process, as if on a machine without GPUs, programs or settings."""

import contextlib
import io
import os
import signal
import sys
from pathlib import Path

FAKE_NVML = next(Path(__file__).resolve().parents[1].rglob("fake_nvml.py"))


def variables(base: Path) -> dict[str, str]:
    """Return the environment of every command."""
    (base / "no_gpu.py").write_text(
        "import importlib.util\n"
        f"spec = importlib.util.spec_from_file_location('fake_nvml', {str(FAKE_NVML)!r})\n"
        "fake = importlib.util.module_from_spec(spec)\nspec.loader.exec_module(fake)\n"
        "nvml = fake.FakeNvml()\n"
    )
    home = base / "home"
    home.mkdir(exist_ok=True)
    return {
        **({"TMPDIR": os.environ["TMPDIR"]} if "TMPDIR" in os.environ else {}),
        # Without programs, frameworks lack the same ones on every machine.
        "PATH": str(base / "no_programs"),
        "HOME": str(home),
        "DLBENCH_HOME": str(home / "dlbench"),
        "MPLCONFIGDIR": str(home),
        **{"COLUMNS": "80", "LINES": "40", "NO_COLOR": "1", "TERM": "dumb", "TZ": "UTC", "LC_ALL": "C.UTF-8"},
        "DLBENCH_NVML": str(base / "no_gpu.py"),
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def command(words: tuple[str, ...]) -> tuple[int, str, str]:
    """Run one command line in this process: exit code, standard output, standard error."""
    from dlbench.suites.__main__ import main

    sys.argv = ["dlbench", *words]
    out, err = io.StringIO(), io.StringIO()
    code: object = 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as end:
            code = end.code
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    return code if isinstance(code, int) else int(code is not None), out.getvalue(), err.getvalue()
