"""The package from Python: what `import dlbench` offers, and `python -m dlbench`."""

import subprocess
import sys

import dlbench


def test_completion_lists_what_is_offered_and_nothing_else() -> None:
    names = subprocess.run(
        [sys.executable, "-c", "import dlbench; print([name for name in dir(dlbench) if name[0] != '_'])"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert names.stdout.strip() == "['cells', 'launches']"
    assert set(dlbench.__all__) <= set(dir(dlbench))


def test_the_package_runs_as_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "dlbench", "list", "--help"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "list" in done.stdout
