"""A real CPU quota around real launches: it is seen by the probe, by the guest, and in the flags of the cells.

A control group with a quota is made for each test, directly where this process may (root, version 1 or 2), else by
``systemd-run --scope``; where neither is permitted the tests are skipped and say why.
"""

import contextlib
import json
import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from known_networks import data_of
from processes import COMMAND, PATIENCE, variables_of_command
from suites_of_null import suite_of_null

from dlbench.adapters import protocol
from dlbench.adapters.protocol import Cell, Launch, Outcome, Protocol, Status
from dlbench.hardware_probe import Machine, probe_cpu
from dlbench.reports.cells import build_matrix
from dlbench.reports.flags import CONTENDED, STEAL_SHARE, THROTTLED, THROTTLED_SHARE, launch_flags, observe
from dlbench.reports.storage.hosts import Host, host_of
from dlbench.reports.storage.results import Results
from dlbench.reports.storage.store import Store
from dlbench.suites.planning.framework import catalogue
from dlbench.suites.run.launcher import LaunchRequest, guest_environment

pytestmark = pytest.mark.alone

PERIOD = 100_000
#: Low enough for a launch to come up against it on a machine that other programs use too.
QUOTA = 0.2

#: Puts itself into the group whose file of processes it is given, and becomes the command.
ENTER = "import os, sys; open(sys.argv[1], 'w').write(str(os.getpid())); os.execvp(sys.argv[2], sys.argv[2:])"

#: Carries out the launch in a control directory as the product does, and leaves its outcome beside it.
CARRY_OUT = """
import json, sys
from pathlib import Path
from dlbench.adapters import protocol
from dlbench.hardware_probe import probe
from dlbench.suites.run.launcher import LaunchRequest, ProcessLauncher
folder, python, variables = Path(sys.argv[1]), Path(sys.argv[2]), json.loads(sys.argv[3])
(folder / "machine.json").write_text(json.dumps(probe().to_dict()))
launch = protocol.read_launch(str(folder))
outcome = ProcessLauncher().launch(LaunchRequest(launch, python, variables, 300.0)).outcome
protocol.write_outcome(str(folder), outcome)
"""

Within = Callable[[list[str]], list[str]]


def _mount_of_cpu() -> tuple[Path, int] | None:
    """Return where the cpu controller is mounted and its version."""
    found = None
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        kind, options = after.split()[0], after.split()[-1].split(",")
        where = Path(before.split()[4])
        if kind == "cgroup" and "cpu" in options:
            return where, 1
        if kind == "cgroup2" and "cpu" in (where / "cgroup.subtree_control").read_text().split():
            found = where, 2
    return found


@contextlib.contextmanager
def _own_group(quota: float) -> Iterator[Within]:
    """Make a group with this quota; raises OSError where that is not permitted."""
    found = _mount_of_cpu()
    if found is None:
        raise OSError("no mounted control group has the cpu controller to give")
    mount, version = found
    group = mount / f"dlbench-test-{uuid.uuid4().hex[:8]}"
    inner = group / "inner"
    group.mkdir()
    try:
        amount = str(round(quota * PERIOD))
        if version == 1:
            (group / "cpu.cfs_period_us").write_text(str(PERIOD))
            (group / "cpu.cfs_quota_us").write_text(amount)
        else:
            (group / "cpu.max").write_text(f"{amount} {PERIOD}")
        # As a container's or a service's: the quota is that of a group around the one the process is in.
        inner.mkdir()
        yield lambda command: [sys.executable, "-c", ENTER, str(inner / "cgroup.procs"), *command]
    finally:
        for made in (inner, group):
            with contextlib.suppress(FileNotFoundError):
                made.rmdir()


@contextlib.contextmanager
def _scope(quota: float) -> Iterator[Within]:
    """Let systemd make the groups; raises OSError where it does not."""
    user = [] if os.geteuid() == 0 else ["--user"]
    start = ["systemd-run", *user, "--scope", "--quiet", "--collect", "-p", f"CPUQuota={quota * 100:.0f}%", "--"]
    tried = subprocess.run([*start, "true"], capture_output=True, text=True, timeout=60)
    if tried.returncode != 0:
        raise OSError(f"systemd-run: {tried.stderr.strip()}")
    yield lambda command: [*start, *command]


@pytest.fixture
def within() -> Iterator[Within]:
    """Give what turns a command into one that runs under a quota of a fifth of a CPU."""
    with contextlib.ExitStack() as stack:
        refused = []
        for make in (_own_group, _scope):
            try:
                given = stack.enter_context(make(QUOTA))
                break
            except (OSError, subprocess.TimeoutExpired) as error:
                refused.append(str(error))
        else:
            pytest.skip("no control group with a quota can be made here: " + "; ".join(refused))
        if probe_cpu().quota_cpus is not None and (probe_cpu().quota_cpus or 0.0) < QUOTA:
            pytest.skip("a tighter quota than that of the tests is in force here")
        yield given


def carried_out(folder: Path, within: Within, order: LaunchRequest) -> tuple[Outcome, Host]:
    """Carry out a launch under the quota; return its outcome and the host as probed there."""
    protocol.write_launch(str(folder), order.launch)
    command = [sys.executable, "-c", CARRY_OUT, str(folder), str(order.interpreter), json.dumps(order.variables)]
    done = subprocess.run(
        within(command), capture_output=True, text=True, timeout=PATIENCE * 3, env=guest_environment({})
    )
    assert done.returncode == 0, done.stderr
    machine = Machine.from_dict(json.loads((folder / "machine.json").read_text()))
    assert machine.cpu.quota_cpus == QUOTA
    return protocol.read_outcome(str(folder)), host_of(machine)


def check(cell: Cell, outcome: Outcome, host: Host) -> None:
    """Hold the evidence of a launch with more threads than its quota to what is true."""
    assert (outcome.status, host.capacity_cpus, host.effective_cpus) == (Status.OK, QUOTA, 1)
    assert outcome.contention is not None
    assert outcome.threads is not None
    used = outcome.threads.cpu_seconds / outcome.threads.wall_seconds
    assert used < 1.3 * QUOTA
    if used < 0.7 * QUOTA:
        pytest.skip(f"other programs left this launch {used:.2f} CPUs: it never came up against its quota of {QUOTA}")
    throttled = outcome.contention.throttled_seconds
    assert throttled is not None
    seen = observe([outcome])
    assert seen is not None
    assert seen.throttled_share == pytest.approx(throttled / outcome.threads.wall_seconds)
    assert seen.throttled_share > THROTTLED_SHARE
    names = {flag.kind.name for flag in launch_flags(cell, outcome, host, QUOTA)}
    assert "throttled" in names
    assert not names & {"threads_unused", "threads_exceeded"}
    # Nobody is accused for what its own quota did, not even by a report that knows the host without its quota.
    if (outcome.contention.steal_seconds or 0.0) < STEAL_SHARE * outcome.threads.wall_seconds:
        assert "contended" not in names
        free = Host("m", "a machine without a quota", 64, 64, 64.0, logical_cpus=64, machine_cpus=64)
        assert "contended" not in {flag.kind.name for flag in launch_flags(cell, outcome, free, QUOTA)}


@pytest.mark.framework
@pytest.mark.slow
def test_two_threads_of_torch_on_a_fifth_of_a_cpu(
    tmp_path: Path, within: Within, framework_python: Callable[[str], Path]
) -> None:
    framework = catalogue()["torch"]
    cell = Cell("torch", framework.folder, "eager", "lstm32", "cpu", 2, 4)
    measured = Protocol(warmup_steps=2, steps=100, minimum_steps=5, seconds=5.0)
    launch = Launch(cell, measured, framework.launch_settings("eager"), str(tmp_path), network=data_of(cell.network))
    order = LaunchRequest(launch, framework_python("torch"), framework.launch_variables("eager", 2), 300.0)
    outcome, host = carried_out(tmp_path, within, order)
    check(cell, outcome, host)


SUITE = suite_of_null("quota", threads=[2], protocol={"launches": 1, "steps": 100, "seconds": 1.0})


@pytest.mark.slow
def test_a_suite_under_a_quota_has_its_cells_flagged(tmp_path: Path, within: Within) -> None:
    (tmp_path / "quota.toml").write_text(SUITE)
    done = subprocess.run(
        within([*COMMAND, "run", "quota.toml", "--no-ceilings"]),
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
