"""The recipe for a cluster: what it asks dlbench for, and what it refuses before anything is submitted."""

import subprocess
from pathlib import Path

import pytest

import dlbench.suites

RECIPE = Path(next(iter(dlbench.suites.__path__))) / "recipes" / "slurm-fleet.sh"
STORE = "postgresql+psycopg://me@db.cluster/results"


def carried_out(folder: Path, *words: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    """Run the recipe with programs that print what they are told: dlbench its store and home too."""
    programs = folder / "bin"
    programs.mkdir(exist_ok=True)
    for name in ("dlbench", "sbatch", "squeue", "sinfo"):
        told = '"$DLBENCH_STORE|${DLBENCH_HOME#$HOME}|"' if name == "dlbench" else ""
        (programs / name).write_text(f"#!/bin/sh\nprintf '%s' {told}\nprintf '[%s]' \"$@\"\necho\n")
        (programs / name).chmod(0o755)
    given = {"PATH": f"{programs}:/usr/bin:/bin", "HOME": str(folder), "STORE": STORE, **variables}
    return subprocess.run(["sh", RECIPE, *words], cwd=folder, env=given, capture_output=True, text=True)


def test_it_builds_once_and_submits(tmp_path: Path) -> None:
    done = carried_out(
        tmp_path, PARTITION="long one", NODES="9", FRAMEWORKS="torch jax", OPTIONS="--frameworks torch,jax"
    )
    assert done.returncode == 0, done.stderr
    built, submitted = done.stdout.splitlines()
    before = f"{STORE}|/dlbench-home|"
    assert built == before + "[env][build][torch][jax]"
    run = "[fleet][run][quick][--on][slurm][--partition][long one][--nodes][9]"
    assert submitted == f"{before}{run}[--store][{STORE}][--frameworks][torch,jax]"


def test_each_node_builds_on_a_disk_of_its_own(tmp_path: Path) -> None:
    done = carried_out(tmp_path, "start", HOME_KIND="node", DLBENCH_HOME="/scratch/me")
    run = f"[fleet][run][quick][--on][slurm][--nodes][4][--store][{STORE}]"
    assert done.stdout == f"{STORE}|/scratch/me|{run}\n"


@pytest.mark.parametrize(("part", "asked"), [("status", "[fleet][status]"), ("report", "[report][fleet]")])
def test_what_became_of_it(tmp_path: Path, part: str, asked: str) -> None:
    assert carried_out(tmp_path, part).stdout.endswith(f"|{asked}[--store][{STORE}]\n")


@pytest.mark.parametrize(
    ("variables", "told"),
    [
        ({"STORE": ""}, "STORE is not set"),
        ({"STORE": "postgresql+psycopg://me:hunter2@db.cluster/results"}, "STORE has a password"),
        ({"HOME_KIND": "both"}, "there are shared and node"),
        ({"DLBENCH": "no-such-dlbench"}, "no-such-dlbench was not found"),
    ],
)
def test_what_it_refuses(tmp_path: Path, variables: dict[str, str], told: str) -> None:
    done = carried_out(tmp_path, **variables)
    assert (done.returncode, done.stdout) == (2, "")
    assert told in done.stderr
    assert "hunter2" not in done.stderr


def test_a_password_file_that_others_may_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / ".pgpass").write_text("db.cluster:5432:results:me:hunter2\n")
    (tmp_path / ".pgpass").chmod(0o640)
    assert "chmod 600" in carried_out(tmp_path, "check").stderr
    (tmp_path / ".pgpass").chmod(0o600)
    done = carried_out(tmp_path, "check")
    assert (done.returncode, done.stderr) == (0, "")
