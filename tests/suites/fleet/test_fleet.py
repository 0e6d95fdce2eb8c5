"""`dlbench fleet` with processes of this machine as nodes, a job's own node, and options that are
refused."""

import itertools
import json
import os
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from made_up_pythons import script
from processes import run_command, suite_of_null, wait_until

import dlbench.suites
from dlbench.hardware_probe import Machine, probe
from dlbench.reports.results.storage.store import Store
from dlbench.suites.errors import FrameworkEnvironmentError, UsageError
from dlbench.suites.fleet import slurm
from dlbench.suites.fleet.jobs import job_state
from dlbench.suites.fleet.node import FleetNode, fleet_node, gpus_of_job, lacking, other_jobs
from dlbench.suites.fleet.slurm import Slurm, further_options, takes_jobs

STORE = "fleet.sqlite"
LAUNCHES = 2
RECIPE = Path(next(iter(dlbench.suites.__path__))) / "recipes" / "slurm-fleet.sh"
URL = "postgresql+psycopg://me@db.cluster/results"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Give a folder with a suite that takes some seconds; jobs that are left at the end are
    killed."""
    protocol = {"seconds": 0.8, "steps": 8, "launches": LAUNCHES}
    (tmp_path / "mine.toml").write_text(
        suite_of_null(step_seconds=0.1, protocol=protocol, threads=[1, 2])
    )
    yield tmp_path
    for process in jobs_of(tmp_path):
        process.kill()


def jobs_of(folder: Path, node: str = "") -> list[psutil.Process]:
    """Return the processes of this folder's fleets."""
    processes = []
    for process in psutil.process_iter():
        try:
            words = process.cmdline()
            if "--node" in words and words[-1].endswith(node) and Path(process.cwd()) == folder:
                processes.append(process)
        except (psutil.Error, OSError):
            continue
    return processes


def fleet(folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    return run_command(folder, "fleet", *words)


def measured(folder: Path) -> Counter[tuple[str, int, int]]:
    """Return how often each node measured each launch of each thread count."""
    with Store.open(folder / STORE) as store:
        records = store.records()
    return Counter(
        (record.node.name, record.cell.threads, record.launch) for record in records if record.node
    )


EVERY_LAUNCH = Counter(itertools.product(("local-1", "local-2"), (1, 2), range(LAUNCHES)))


def test_jobs_that_were_killed_and_cancelled_are_submitted_again_and_resume_their_runs(
    folder: Path,
) -> None:
    words = ("--on", "local", "--nodes", "2", "--store", STORE, "--seed", "7")
    begun = fleet(folder, "run", "mine.toml", *words)
    assert begun.returncode == 0, begun.stderr
    assert "2 jobs of mine.toml for local-1, local-2" in begun.stderr
    wait_until(lambda: len({node for node, _, _ in measured(folder)}) == 2, "the first records")
    for process in jobs_of(folder, "/local-2"):
        process.send_signal(signal.SIGKILL)
    assert "cancelled on local-1" in fleet(folder, "cancel", "--node", "local-1").stderr
    waited = fleet(folder, "status", "--wait", "--store", STORE)
    assert waited.returncode == 1
    assert waited.stdout.count("ended early") == 2
    assert "fleet run mine.toml --resume --fleet" in waited.stdout
    assert "No job" in fleet(folder, "cancel").stderr
    assert (
        "Ended by SIGTERM. Every finished launch is stored"
        in fleet(folder, "logs", "--node", "local-1").stdout
    )
    assert max(measured(folder).values()) == 1
    refused = fleet(folder, "run", "mine.toml", "--resume", "--launches", "9", "--store", STORE)
    assert (refused.returncode, "other options: --seed 7" in refused.stderr) == (2, True)
    resumed = fleet(folder, "run", "mine.toml", "--resume", "--wait", "--store", STORE)
    assert resumed.returncode == 0, resumed.stderr
    assert "2 jobs again, for local-1, local-2" in resumed.stderr
    status = json.loads(fleet(folder, "status", "--json", "--store", STORE).stdout)
    assert [job["state"] for job in status["jobs"]] == ["finished", "finished"]
    assert measured(folder) == EVERY_LAUNCH
    again = fleet(folder, "run", "mine.toml", "--resume", "--store", STORE)
    assert (again.returncode, "nothing to resume" in again.stderr) == (0, True)
    # The same command once more measures nothing: a scheduler may requeue a job.
    node = f"{status['id']}/local-1"
    once_more = run_command(
        folder, "run", "mine.toml", "--seed", "7", "--store", STORE, "--node", node
    )
    assert (once_more.returncode, "has already finished" in once_more.stderr) == (0, True), (
        once_more.stderr
    )
    assert measured(folder) == EVERY_LAUNCH


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("run", "mine.toml", "--on", "slurm"),
            "dlbench.sqlite is a file, and several machines cannot",
        ),
        (("run", "mine.toml", "--on", "nowhere"), "no scheduler named 'nowhere'"),
        (
            ("run", "mine.toml", "--on", "local", "--partition", "p"),
            "--on local takes no partition",
        ),
        (("run", "mine.toml", "--on", "local", "--nodelist", "n1"), "There is no node 'n1'"),
        (("run", "mine.toml", "--on", "local", "--fleet", "x"), "Give it together with --resume"),
        (("run", "mine.toml", "--resume"), "No fleet of mine.toml was submitted from this folder"),
        (("run", "mine.toml", "--resume", "--nodes", "2"), "are not for --resume"),
        (
            ("run", "mine.toml", "--store", "postgresql://me:hunter2@host/db"),
            "A password in --store",
        ),
        (("status", "nonesuch"), "No fleet was submitted from this folder"),
    ],
)
def test_wrong_options_of_a_fleet_are_refused_in_one_line(
    tmp_path: Path, words: tuple[str, ...], message: str
) -> None:
    (tmp_path / "mine.toml").write_text(suite_of_null())
    done = fleet(tmp_path, *words)
    assert done.returncode == 2
    assert message in done.stderr
    assert "hunter2" not in done.stderr
    assert not list(tmp_path.glob("*.sqlite"))


def test_states() -> None:
    assert job_state(None, "refused", finished=False) == ("not submitted", "refused")
    assert job_state(("gone", ""), "", finished=False) == (
        "ended early",
        "the scheduler no longer knows it",
    )
    assert job_state(("unknown", "away"), "", finished=False) == ("unknown", "away")


@pytest.fixture
def machine() -> Machine:
    probed = probe()
    cpu = replace(probed.cpu, affinity=tuple(range(8)), logical_cpus=8, quota_cpus=None)
    return replace(
        probed, cpu=cpu, memory=replace(probed.memory, total_bytes=64 * 1024**3, limit_bytes=None)
    )


def test_a_job_knows_which_part_of_its_node_it_has(machine: Machine) -> None:
    assert lacking(machine) == lacking(machine, gpus_given=0) == []
    cpu, memory = machine.cpu, machine.memory
    assert lacking(replace(machine, cpu=replace(cpu, affinity=(0, 1)))) == [
        "it may use 2 of 8 CPUs"
    ]
    assert lacking(replace(machine, cpu=replace(cpu, quota_cpus=2.5))) == [
        "a quota of 2.5 of 8 CPUs' time"
    ]
    tight = replace(machine, memory=replace(memory, limit_bytes=16 * 1024**3))
    assert lacking(tight) == ["it may use 16 of 64 GiB of memory"]
    assert lacking(replace(machine, memory=replace(memory, limit_bytes=61 * 1024**3))) == []
    assert (gpus_of_job({}), gpus_of_job({"SLURM_JOB_GPUS": "0,3"})) == (None, 2)


def test_other_jobs_are_looked_for_now_and_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert other_jobs("n1", {}) is None
    script(tmp_path / "squeue", "#!/bin/sh\necho 7\necho 8\necho 7\n")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert other_jobs("n1", {"SLURM_JOB_ID": "7"}) == ["8"]
    clock, answers = [0.0], [["8"], None, []]
    node = FleetNode("f", "n1", ["a part"], lambda node: answers.pop(0), lambda: clock[0])
    shared = []
    for seconds in (0, 0, 301, 301):
        clock[0] += seconds
        shared.append(node.now().shared)
    assert shared == [("a part", "other jobs are on it: 8")] * 3 + [("a part",)]


def test_the_name_of_a_node_is_slurms_first(machine: Machine) -> None:
    nodes = [
        fleet_node("f/asked", machine, print, variables)
        for variables in ({}, {"SLURMD_NODENAME": "n1"})
    ]
    assert [node.name for node in nodes if node] == ["asked", "n1"]
    assert fleet_node(None, machine, print) is None
    with pytest.raises(UsageError, match="Write FLEET/NODE"):
        fleet_node("f", machine, print)


def test_options_of_sbatch_are_read_as_it_writes_them() -> None:
    texts = ["constraint=zen4&ib", "--mem_per_cpu=4G", "hold", "comment=a=b c"]
    expected = {"constraint": "zen4&ib", "mem-per-cpu": "4G", "hold": "", "comment": "a=b c"}
    assert further_options(texts) == {f"further.{name}": value for name, value in expected.items()}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        *(
            (text, "is not an option of sbatch")
            for text in ("", "=5", "Mem=5", "a b=5", "comment=two\nlines", "-c=5")
        ),
        *((text, "its own option") for text in ("partition=p", "time=5", "--qos=q", "exclusive")),
        *(
            (text, "dlbench sets it")
            for text in ("array=0-3", "nodelist=n1", "no-requeue", "output=x", "wrap=true")
        ),
    ],
)
def test_options_of_sbatch_that_are_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        further_options([text])


@pytest.mark.parametrize(
    ("name", "settings"),
    [("PARTITION", {"partition": "short"}), ("TIMELIMIT", {"minutes": "5"}), ("REQUEUE", {})],
)
def test_variables_that_sbatch_prefers_to_its_script(
    name: str, settings: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(f"SBATCH_{name}", "1")
    with pytest.raises(UsageError, match=f"SBATCH_{name} would change"):
        Slurm(tmp_path, settings).submit("n1", ["true"])


def test_nodes_that_take_jobs() -> None:
    states = ("idle", "idle~", "mixed", "allocated+", "idle*", "down*", "drained", "idle$")
    assert [state for state in states if takes_jobs(state)] == ["idle", "idle~", "mixed"]


def test_a_cluster_whose_squeue_refuses_a_list_for_one_unknown_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refusing(*words: str) -> str:
        jobs = words[words.index("-j") + 1].split(",")
        if "999999" in jobs:
            raise FrameworkEnvironmentError("Invalid job id specified")
        return "".join(f"{job}|RUNNING|None\n" for job in jobs)

    monkeypatch.setattr(slurm, "ask", refusing)
    states = Slurm(Path(), {}).seen(["1", "999999", "2"])
    assert states == {
        "1": ("running", "RUNNING"),
        "999999": ("gone", ""),
        "2": ("running", "RUNNING"),
    }


def recipe(folder: Path, *words: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    """Run the recipe for a cluster with programs that print their arguments."""
    for name in ("dlbench", "sbatch", "squeue", "sinfo"):
        script(
            folder / "bin" / name,
            "#!/bin/sh\nprintf '%s|' \"$DLBENCH_STORE\"\nprintf '[%s]' \"$@\"\necho\n",
        )
    environment = {
        "PATH": f"{folder / 'bin'}:/usr/bin:/bin",
        "HOME": str(folder),
        "STORE": URL,
        **variables,
    }
    return subprocess.run(
        ["sh", RECIPE, *words], cwd=folder, env=environment, capture_output=True, text=True
    )


def test_the_recipe_builds_once_and_submits(tmp_path: Path) -> None:
    done = recipe(
        tmp_path,
        PARTITION="long one",
        NODES="9",
        FRAMEWORKS="torch jax",
        OPTIONS="--frameworks torch,jax",
    )
    assert done.returncode == 0, done.stderr
    run = f"[fleet][run][quick][--on][slurm][--partition][long one][--nodes][9][--store][{URL}]"
    assert done.stdout.splitlines() == [
        f"{URL}|[env][build][torch][jax]",
        f"{URL}|{run}[--frameworks][torch,jax]",
    ]
    assert recipe(tmp_path, "status").stdout == f"{URL}|[fleet][status][--store][{URL}]\n"


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"STORE": ""}, "STORE is not set"),
        ({"STORE": "postgresql+psycopg://me:hunter2@db.cluster/results"}, "STORE has a password"),
        ({"HOME_KIND": "both"}, "there are shared and node"),
        ({"DLBENCH": "no-such-dlbench"}, "no-such-dlbench was not found"),
    ],
)
def test_the_recipe_refuses_missing_variables_and_a_password(
    tmp_path: Path, variables: dict[str, str], message: str
) -> None:
    done = recipe(tmp_path, **variables)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert "hunter2" not in done.stderr
