"""A real CPU quota around real launches: it is seen by the probe, by the guest, and in the flags of the cells.

A control group with a quota is made where this process may (root, version 1 or 2); else the test is skipped.
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


@pytest.fixture
def within() -> Iterator[Within]:
    """Give what turns a command into one that runs under a quota of a fifth of a CPU."""
    if (probe_cpu().quota_cpus or QUOTA) < QUOTA:
        pytest.skip("a tighter quota than that of the tests is in force here")
    groups = Path("/sys/fs/cgroup")
    first_version = (groups / "cpu").is_dir()
    group = groups / ("cpu" if first_version else "") / f"dlbench-test-{uuid.uuid4().hex[:8]}"
    inner = group / "inner"
    amount = round(QUOTA * PERIOD)
    limits = {"cpu.cfs_period_us": f"{PERIOD}", "cpu.cfs_quota_us": f"{amount}"}
    try:
        # As a container's or a service's: the quota is that of a group around the one the process is in.
        inner.mkdir(parents=True)
        for name, text in (limits if first_version else {"cpu.max": f"{amount} {PERIOD}"}).items():
            (group / name).write_text(text)
        yield lambda command: [sys.executable, "-c", ENTER, str(inner / "cgroup.procs"), *command]
    except OSError as error:
        pytest.skip(f"no control group with a quota can be made here: {error}")
    finally:
        for made in (inner, group):
            with contextlib.suppress(OSError):
                made.rmdir()


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
