"""Real CPU quotas: around dlbench, seen by the probe, the guest and the flags; and those that it
sets for a launch.

A control group with a quota is made where this process may (root, version 1 or 2); else the test is
skipped.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from made_up_adapters import write_adapter
from processes import (
    COMMAND,
    PATIENCE,
    null_cell,
    null_order,
    records_in,
    run_command,
    running_command,
    suite_of_null,
    variables_of_command,
    wait_until,
)

from dlbench.adapters.protocol import Status
from dlbench.hardware_probe import probe, probe_cpu
from dlbench.reports.results.flag_kinds import CONTENDED, THROTTLED
from dlbench.reports.results.matrix import build_matrix
from dlbench.reports.results.outcome import QuotaUse
from dlbench.reports.results.results import Results
from dlbench.reports.results.storage.store import Store
from dlbench.suites.run import quota
from dlbench.suites.run.launcher import launch_process

PROCESSES = "cgroup.procs"
#: Low enough for a launch to come up against it on a machine that other programs use too.
QUOTA = 0.2

#: Puts itself into the group whose file of processes it is given, and becomes the command.
ENTER = (
    "import os, sys; open(sys.argv[1], 'w').write(str(os.getpid())); os.execvp(sys.argv[2], "
    "sys.argv[2:])"
)


@pytest.fixture
def places() -> tuple[Path, ...]:
    """Return the groups in which those of launches are made here."""
    parents = quota.parents_of_launch_groups()
    if isinstance(parents, str):
        pytest.skip(parents)
    return parents


@pytest.fixture
def within(places: tuple[Path, ...]) -> Iterator[list[str]]:
    """Give words before a command, by which it runs under a quota of a fifth of a CPU."""
    if (probe_cpu().quota_cpus or QUOTA) < QUOTA:
        pytest.skip("a tighter quota than that of the tests is in force here")
    with quota.limited(QUOTA) as group:
        assert group is not None
        # As a container's or a service's: the quota is that of a group around the one the process
        # is in.
        inner = group.folders[0] / "inner"
        inner.mkdir()
        yield [sys.executable, "-c", ENTER, str(inner / PROCESSES)]
        inner.rmdir()


SUITE = suite_of_null("quota", threads=[2], protocol={"launches": 1, "steps": 100, "seconds": 1.0})


@pytest.mark.slow
def test_a_suite_under_a_quota_has_its_cells_flagged(tmp_path: Path, within: list[str]) -> None:
    (tmp_path / "quota.toml").write_text(SUITE)
    done = subprocess.run(
        [*within, *COMMAND, "run", "quota.toml", "--no-ceilings"],
        cwd=tmp_path,
        env=variables_of_command(tmp_path / "home"),
        capture_output=True,
        text=True,
        timeout=PATIENCE * 3,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    with Store.open(tmp_path / "dlbench.sqlite", create=False) as store:
        results = Results.of([store])
    assert [record.quota_cpus for record in results.records] == [QUOTA] * len(results.records)
    (cell,) = build_matrix(results).cells.values()
    assert cell.has(THROTTLED)
    assert not cell.has(CONTENDED)
    assert THROTTLED.legend in done.stdout


# Quotas that dlbench sets itself.


def own_groups(places: tuple[Path, ...], process: int) -> list[Path]:
    """Return the groups that this process made."""
    return [group for place in places for group in place.glob(f"dlbench-{process}-*")]


def test_a_launch_has_its_quota_and_its_group_goes_with_it(
    tmp_path: Path, places: tuple[Path, ...]
) -> None:
    process_lists: list[str] = []

    def look(directory: Path) -> None:
        process_lists.extend(
            (group / PROCESSES).read_text() for group in own_groups(places, os.getpid())
        )

    outcome = launch_process(
        null_order(tmp_path, {"step_seconds": 0.3}, cpu_quota=0.5), look
    ).outcome()
    assert outcome.status is Status.OK
    assert any(process_lists)
    assert outcome.outside is not None
    assert outcome.outside.quota is not None
    assert outcome.outside.quota.periods >= 0
    assert own_groups(places, os.getpid()) == []


def test_single_calls_of_inference_show_the_pauses_of_a_quota(
    tmp_path: Path, places: tuple[Path, ...]
) -> None:
    order = null_order(tmp_path, {"step_seconds": 0.02}, cpu_quota=0.5, task="inference")
    protocol = order.launch.protocol._replace(sample_seconds=0.5, seconds=1.0)
    outcome = launch_process(
        replace(order, launch=order.launch._replace(protocol=protocol))
    ).outcome()
    assert outcome.steps_per_sample > 1
    assert len(outcome.calls_ns) == len(outcome.samples_ns) * outcome.steps_per_sample
    # A call that is cut off waits for up to half of the kernel's period of 0.1 s, while most are
    # not cut.
    assert max(outcome.calls_ns) > 1.5 * min(outcome.calls_ns)


def test_a_group_is_gone_whatever_ends_the_launch(tmp_path: Path, places: tuple[Path, ...]) -> None:
    def interrupt(directory: Path) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        launch_process(null_order(tmp_path, {"fault": "hang"}, cpu_quota=0.5), interrupt)
    assert own_groups(places, os.getpid()) == []
    outcome = launch_process(
        null_order(tmp_path, {"fault": "hang"}, timeout=1.0, cpu_quota=0.05)
    ).outcome()
    assert outcome.status is Status.TIMED_OUT
    assert own_groups(places, os.getpid()) == []


@pytest.mark.slow
def test_the_next_run_removes_the_groups_of_one_that_was_killed(
    tmp_path: Path, places: tuple[Path, ...]
) -> None:
    (tmp_path / "mine.toml").write_text(
        suite_of_null(step_seconds=0.05, cpu_quota=[0.5], protocol={"steps": 1000})
    )
    with running_command(
        tmp_path, "run", "mine.toml", "--no-ceilings", "--no-wait-for-quiet"
    ) as process:
        leftover_groups = wait_until(lambda: own_groups(places, process.pid), "a group")
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    done = run_command(
        tmp_path, "run", "mine.toml", "--no-ceilings", "--no-wait-for-quiet", "--steps", "2"
    )
    assert done.returncode == 0, done.stderr
    assert [group for group in leftover_groups if group.exists()] == []


def test_leftovers_are_removed_from_every_group_around(
    places: tuple[Path, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    outer = places[0] / f"outer-{os.getpid()}"
    leftover = outer / "dlbench-999999999-1-0"
    outer.mkdir()
    leftover.mkdir()
    try:
        monkeypatch.setattr(quota, "directories", lambda root, controller: [*places, outer])
        quota.remove_left.__wrapped__()
        assert not leftover.exists()
    finally:
        if leftover.exists():
            leftover.rmdir()
        outer.rmdir()


#: Keeps ``count()`` threads at work, whose library releases Python's lock.
BUSY = """
def effective_threads(self): return None
def step(self):
    import concurrent.futures, hashlib
    if not hasattr(self, "pool"):
        self.size = self.cell.threads or self.count()
        self.pool = concurrent.futures.ThreadPoolExecutor(self.size)
    products = [
        self.pool.submit(hashlib.pbkdf2_hmac, "sha256", b"a", b"b", 40_000)
        for _ in range(self.size)
    ]
    for product in products: product.result()
"""
IGNORES = "def count(self): return len(os.sched_getaffinity(0))"
HEEDS = """
def count(self):
    from dlbench.hardware_probe import probe_cpu
    return probe_cpu().effective_cpus
"""
OF_TWO = """
name = "contained"
summary = "for tests"
networks = ["fcn5"]
frameworks = ["heeds", "ignores"]
threads = ["default", "quota"]
cpu_quota = ["none", 0.25]
[protocol]
launches = 1
warmup_steps = 1
steps = 3
minimum_steps = 2
seconds = 1.0
"""


@pytest.mark.slow
def test_a_framework_that_ignores_the_quota_is_distinguished_from_one_that_heeds_it(
    tmp_path: Path, places: tuple[Path, ...]
) -> None:
    if probe_cpu().capacity_cpus < 2:
        pytest.skip("with one CPU there is no thread too many")
    adapters = [
        word
        for name, count in (("heeds", HEEDS), ("ignores", IGNORES))
        for word in ("--adapter", f"{name}={write_adapter(tmp_path / name, count + BUSY, name)}")
    ]
    (tmp_path / "contained.toml").write_text(OF_TWO)
    done = run_command(
        tmp_path, "run", "contained.toml", "--no-ceilings", "--no-wait-for-quiet", *adapters
    )
    assert done.returncode == 0, done.stdout + done.stderr
    records = [
        record
        for record in records_in(tmp_path)
        if record.cell.cpu_quota and not record.cell.threads
    ]
    used = {record.cell.framework: record.outcome.outside.quota for record in records}  # type: ignore[union-attr]
    # So low that both come up against it, on a machine that other programs use too.
    assert all(use is not None and use.throttled_seconds > 0 for use in used.values())
    assert all(
        use is not None and use.throttled_periods > 0.5 * use.periods for use in used.values()
    )
    rows = json.loads(run_command(tmp_path, "report", "containers", "--json").stdout)["rows"]
    assert {row["framework"]: row["sees_quota"] for row in rows} == {
        "heeds": True,
        "ignores": False,
    }
    taken = {row["framework"]: row["threads_taken"] for row in rows}
    assert taken["heeds"] == 1 < taken["ignores"]


def test_without_permission_a_cell_is_skipped_with_reason_and_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        quota,
        "parents_of_launch_groups",
        lambda: "no control group can be made on this machine; run dlbench as root",
    )
    launched = launch_process(null_order(tmp_path, cpu_quota=0.5))
    assert (launched.verdict.status, launched.wall_seconds) == (Status.SKIPPED, 0.0)
    assert "run dlbench as root" in launched.verdict.reason
    (line,) = quota.notes([null_cell(cpu_quota=0.5), null_cell()], probe())
    assert line.startswith("1 cell with a CPU quota will not be launched")


def test_a_tighter_quota_around_dlbench_is_said(places: tuple[Path, ...]) -> None:
    machine = probe()
    machine = replace(machine, cpu=replace(machine.cpu, quota_cpus=0.5))
    (line,) = quota.notes(
        [null_cell(cpu_quota=quota_cpus) for quota_cpus in (0.25, 0.5, 1.0)], machine
    )
    assert (
        line
        == "dlbench runs under a CPU quota of 0.5, which also limits 1 cell with a larger quota."
    )


def test_groups_of_version_2_are_made_where_the_controller_is_handed_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, around = tmp_path / "slice" / "session", tmp_path / "slice"
    own.mkdir(parents=True)
    for folder, handed_on in ((own, ""), (around, "cpu memory")):
        (folder / "cgroup.controllers").write_text("cpu memory")
        (folder / "cgroup.subtree_control").write_text(handed_on)
        (folder / PROCESSES).write_text("1\n")
        (folder / "cgroup.type").write_text("domain\n")
    monkeypatch.setattr(quota, "directories", lambda root, controller: [own, around])
    assert quota.parents_of_launch_groups.__wrapped__() == (around,)
    # The root group, which has no type, may delegate the controller in spite of its processes.
    (around / "cgroup.subtree_control").write_text("")
    (around / "cgroup.type").unlink()
    assert quota.parents_of_launch_groups.__wrapped__() == (around,)
    assert (around / "cgroup.subtree_control").read_text() == "+cpu"
    group = quota.ControlGroup((around,))
    group.limit(0.5)
    assert (around / "cpu.max").read_text() == "50000 100000"
    group.limit(0.001)
    assert (around / "cpu.max").read_text() == "1000 100000"  # the least that the kernel takes
    group.lift()
    assert (around / "cpu.max").read_text() == "max 100000"
    stat = (
        "usage_usec 2500000\nuser_usec 1\nnr_periods 40\nnr_throttled 30\nthrottled_usec 1500000\n"
    )
    (around / "cpu.stat").write_text(stat)
    assert group.use() == QuotaUse(40, 30, pytest.approx(1.5), pytest.approx(2.5))
