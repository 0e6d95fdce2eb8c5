"""A real CPU quota around real launches: it is seen by the probe, by the guest, and in the flags of the cells.

A control group with a quota is made for each test, directly where this process may (root, version 1 or 2), else by
``systemd-run --scope``; where neither is permitted the tests are skipped and say why.
"""

import contextlib
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from processes import COMMAND, PATIENCE, suite_of_null, variables_of_command

from dlbench.hardware_probe import probe_cpu
from dlbench.reports.cells import build_matrix
from dlbench.reports.flags import CONTENDED, THROTTLED
from dlbench.reports.storage.results import Results
from dlbench.reports.storage.store import Store

pytestmark = pytest.mark.alone

PERIOD = 100_000
#: Low enough for a launch to come up against it on a machine that other programs use too.
QUOTA = 0.2

#: Puts itself into the group whose file of processes it is given, and becomes the command.
ENTER = "import os, sys; open(sys.argv[1], 'w').write(str(os.getpid())); os.execvp(sys.argv[2], sys.argv[2:])"


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


@pytest.fixture
def within() -> Iterator[Within]:
    """Give what turns a command into one that runs under a quota of a fifth of a CPU."""
    with contextlib.ExitStack() as stack:
        try:
            given = stack.enter_context(_own_group(QUOTA))
        except OSError as error:
            pytest.skip(f"no control group with a quota can be made here: {error}")
        if (probe_cpu().quota_cpus or QUOTA) < QUOTA:
            pytest.skip("a tighter quota than that of the tests is in force here")
        yield given


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
