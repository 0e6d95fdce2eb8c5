"""One launch is one process: whatever the guest does, an outcome comes back and nothing of it is
left running.

Guests that flood, fork, kill, fill the disk and leave strange things behind are interpreters of
their own.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import psutil
import pytest
from made_up_pythons import script
from processes import BRIEF, gone, null_order, wait_until
from recorded_trees import rapl, write_tree

from dlbench.adapters.protocol import Status
from dlbench.hardware_probe.energy import PackageCounters
from dlbench.suites.errors import FrameworkEnvironmentError
from dlbench.suites.run import answers, launcher
from dlbench.suites.run.judge import JudgedLaunch, judged
from dlbench.suites.run.launcher import LAUNCH_MARK, belongs_to_launch, launch_process, no_tick


def launch(folder, settings=None, tick=no_tick, **options):
    order = null_order(folder, settings, **options)
    launched = launch_process(order, tick)
    outcome = judged(order, launched, None)
    return JudgedLaunch(outcome, launched.wall_seconds, launched.suspended)


def launch_script(folder, body, tick=no_tick, **options):
    """Launch a guest that is a shell script; ``$3`` is the launch's folder. Returns its outcome."""
    interpreter = script(folder / "python", f"#!/bin/sh\n{body}\n")
    return launch(folder, tick=tick, interpreter=interpreter, **options).outcome


def is_well(folder):
    """Tell whether an honest launch ends well after a bad one."""
    return launch(folder).outcome.status is Status.OK


def test_a_supervisor_that_ends_before_it_reads_does_not_end_the_host(tmp_path, monkeypatch):
    """The command line lets SIGPIPE end it, since its reader may leave a pipe early."""
    monkeypatch.setattr(launcher, "_SUPERVISOR", tmp_path / "supervisor.py")
    (tmp_path / "supervisor.py").write_text("")
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        code = 2
        with contextlib.suppress(Exception):
            launched = launch(tmp_path, variables={"LARGE": "x" * 1_000_000})
            code = 0 if launched.outcome.status is Status.CRASHED else 1
        os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_a_launch_answers(tmp_path):
    launched = launch(tmp_path, {"step_seconds": 0.002})
    outcome = launched.outcome
    assert (outcome.status, outcome.reason, outcome.parity.verdict) == (Status.OK, "", "unchecked")
    assert 1 <= len(outcome.samples_ns) <= BRIEF.steps
    assert all(sample >= 2_000_000 for sample in outcome.samples_ns)
    assert outcome.first_step_seconds >= 0.002
    assert outcome.peak_memory_bytes > 10**6
    assert launched.wall_seconds > sum(outcome.samples_ns) * 1e-9
    begun = list(outcome.phases.values())
    assert list(outcome.phases)[:5] == ["start", "import", "build", "first step", "warm-up"]
    assert begun == sorted(begun)
    assert begun[-1] - begun[0] <= launched.wall_seconds
    assert (
        outcome.phases["timed"]
        <= outcome.timed_between[0]
        <= outcome.timed_between[1]
        <= outcome.phases["check"]
    )


class At50Watts(PackageCounters):
    """The counter of a package that always takes 50 W."""

    def read(self):
        return {"package-0": int(50e6 * time.monotonic())}


def test_the_energy_of_the_timed_steps_is_read_at_the_marks_around_them(tmp_path, monkeypatch):
    tree = write_tree(tmp_path / "tree", rapl({"package-0": 1}, 10**15))
    monkeypatch.setattr(launcher, "PackageCounters", partial(At50Watts, tree))
    outside = launch(tmp_path, {"step_seconds": 0.1}).outcome.outside
    assert outside.energy.reason == ""
    assert outside.energy.joules == {
        "package-0": pytest.approx(50 * outside.timed_seconds, rel=0.25)
    }
    monkeypatch.setattr(launcher, "PackageCounters", partial(PackageCounters, tmp_path / "empty"))
    energy = launch(tmp_path, {"step_seconds": 0.1}).outcome.outside.energy
    assert energy.joules is None
    assert "no CPU package" in energy.reason


def test_a_guest_ends_when_the_launch_is_interrupted(tmp_path):
    pids = []
    children_before = {child.pid for child in psutil.Process().children()}

    def interrupt(directory):
        pids.extend(
            child.pid for child in psutil.Process().children() if child.pid not in children_before
        )
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        launch_process(null_order(tmp_path, {"fault": "hang"}), interrupt)
    assert pids
    assert all(map(gone, pids))


@pytest.mark.parametrize(
    ("kills", "signal", "status", "reason"),
    [
        (
            (7, 8),
            "KILL",
            Status.OUT_OF_MEMORY,
            "killed by the kernel: the machine or its cgroup ran out of memory",
        ),
        ((7, 7), "KILL", Status.CRASHED, "ended by signal 9 (SIGKILL)"),
        (
            (7, 8),
            "SEGV",
            Status.CRASHED,
            "ended by signal 11 (SIGSEGV)",
        ),  # another process was killed for memory
    ],
)
def test_a_guest_that_the_kernel_killed_for_memory_is_told_from_others(
    tmp_path, monkeypatch, kills, signal, status, reason
):
    counted = iter(kills)
    monkeypatch.setattr(launcher, "oom_kills", lambda: next(counted))
    outcome = launch_script(tmp_path, f"kill -{signal} $$")
    assert (outcome.status, outcome.reason) == (status, reason)


def test_no_answer_gives_the_last_words(tmp_path):
    talkative = (
        "for i in 1 2 3 4 5 6; do echo word $i >&2; echo >&2; done; printf '\\377' >&2; exit 9"
    )
    outcome = launch_script(tmp_path, talkative)
    assert outcome.status is Status.CRASHED
    assert outcome.reason.startswith(
        "exit code 9, no answer; end of stderr: word 4 | word 5 | word 6"
    )


def test_an_interpreter_that_went_away_is_a_crash_and_not_the_end_of_the_run(tmp_path):
    outcome = launch(tmp_path, interpreter=tmp_path / "none").outcome
    assert outcome.status is Status.CRASHED
    assert "cannot be started: No such file or directory" in outcome.reason


def test_a_full_disk_for_temporary_files_is_said_and_nothing_is_left(tmp_path, monkeypatch):
    def full(directory, launch):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(launcher.tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(launcher, "write_launch", full)
    with pytest.raises(FrameworkEnvironmentError, match="No space left on device"):
        launch(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_guest_sees_nothing_of_the_shell(tmp_path, monkeypatch):
    for name in (
        "OMP_NUM_THREADS",
        "PYTHONPATH",
        "PYTHONSTARTUP",
        "LD_PRELOAD",
        "MKL_NUM_THREADS",
        "SECRET_TOKEN",
    ):
        monkeypatch.setenv(name, "" if name == "LD_PRELOAD" else "77")
    monkeypatch.setenv("LANG", "C.UTF-8")
    variables_file = tmp_path / "seen"
    script = f'env > {variables_file}\nexec {sys.executable} "$@"'
    outcome = launch_script(tmp_path, script, variables={"OPENBLAS_NUM_THREADS": "3", "A": "b"})
    result = dict(line.partition("=")[::2] for line in variables_file.read_text().splitlines())
    for name in ("PWD", "OLDPWD", "SHLVL", "_"):  # the shell script's own
        result.pop(name, None)
    ours = {"DLBENCH_VARIABLES", "DLBENCH_LAUNCH", "DLBENCH_HOST", "TMPDIR"}
    assert set(result) <= {*launcher.INHERITED, "OPENBLAS_NUM_THREADS", "A", *ours}
    assert (result["OPENBLAS_NUM_THREADS"], result["A"], result["LANG"]) == ("3", "b", "C.UTF-8")
    assert outcome.software["variables"] == {"OPENBLAS_NUM_THREADS": "3", "A": "b"}


def test_the_parent_rests_while_a_guest_is_measured(tmp_path):
    ticks = []
    wall, cpu = time.perf_counter(), time.process_time()
    launch_script(tmp_path, "exec sleep 2", ticks.append)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    assert wall >= 2
    assert cpu < 0.05 * wall
    assert 1 <= len(ticks) <= 2 * wall + 2


# A process whose parent ends at once, so that it is no longer of this one's tree; it prints its
# number and waits.
LEAVES = (
    "import os, sys, time\nif os.fork(): os._exit(0)\nos.setsid()\nprint(os.getpid(), "
    "flush=True)\nsys.stdin.read()\n"
)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("marked", [True, False])
def test_a_process_that_left_its_launchs_tree_is_known_by_its_mark(marked):
    environment = {name: value for name, value in os.environ.items() if name != LAUNCH_MARK}
    child = subprocess.Popen(
        [sys.executable, "-I", "-c", LEAVES],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**environment, **({LAUNCH_MARK: "/somewhere"} if marked else {})},
    )
    with child:
        number = int(child.stdout.readline())
        child.wait()  # its parent is gone
        if os.getpid() in [parent.pid for parent in psutil.Process(number).parents()]:
            pytest.skip("this process adopts orphans")
        assert belongs_to_launch(number) is marked


#: Starts a process that left the session, has no parent and no mark any more, and never ends by
#: itself.
ESCAPES = """
import os, signal, sys, time
for number in range(int(sys.argv[1])):
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        with open(sys.argv[2], "a") as file:
            file.write("%d\\n" % os.getpid())
        os.execve(sys.executable, [sys.executable, "-I", "-S", "-c", "import time; time.sleep(600)"], {})
for _ in range(int(sys.argv[1])):
    os.wait()
"""
#: Says on the host's line what stands in a file, to its end.
SAYS = (
    f"{sys.executable} -c 'import os, shutil, sys, time; "
    'shutil.copyfileobj(open(sys.argv[1], "rb"), os.fdopen(int(os.environ["DLBENCH_HOST"]), "wb")); time.sleep(0.2)\''
)


@pytest.mark.parametrize("stream", ["", " >&2"])
def test_a_flood_of_words_fills_neither_disk_nor_reason(stream, tmp_path, monkeypatch):
    monkeypatch.setattr(launcher.tempfile, "tempdir", str(tmp_path))
    most = []
    flood = f"head -c 60000000 /dev/zero | tr '\\0' 'x'{stream}\necho the end >&2\nexit 3"
    outcome = launch_script(
        tmp_path, flood, lambda directory: most.append(answers.bytes_in(directory, 10**9))
    )
    assert outcome.status is Status.CRASHED
    assert outcome.reason.startswith("exit code 3, no answer")
    assert outcome.reason.endswith("the end")
    assert len(outcome.reason) < 1000
    assert max(most, default=0) < 10**6
    assert is_well(tmp_path)


def test_whatever_a_guest_forks_ends_with_it(tmp_path):
    noted, program = tmp_path / "pids", tmp_path / "escapes.py"
    program.write_text(ESCAPES)
    escaping = (
        f"{sys.executable} {program} 20 {noted}\nwhile [ $(wc -l < {noted}) -lt 20 ]; do sleep "
        "0.05; done\nexit 1"
    )
    assert launch_script(tmp_path, escaping).status is Status.CRASHED
    escaped = [int(line) for line in noted.read_text().split()]
    assert len(escaped) == 20
    for pid in escaped:
        wait_until(lambda pid=pid: gone(pid), "the end of a process that left everything behind")
    assert is_well(tmp_path)


@pytest.mark.parametrize("signal", ["KILL", "TERM", "STOP"])
def test_a_guest_that_turns_on_its_parent_harms_its_own_launch_alone(signal, tmp_path, monkeypatch):
    monkeypatch.setattr(launcher, "_GRACE_SECONDS", 0.5)
    outcome = launch_script(tmp_path, f"kill -{signal} $PPID\nsleep 0.3\nexit 4", timeout=3.0)
    assert outcome.status in (Status.CRASHED, Status.TIMED_OUT)
    assert is_well(tmp_path)
    assert [
        child for child in psutil.Process().children() if child.status() == psutil.STATUS_STOPPED
    ] == []


def test_a_guest_that_fills_the_disk_is_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(launcher, "_MOST_BYTES", 20 * 1024**2)
    monkeypatch.setattr(launcher.tempfile, "tempdir", str(tmp_path))
    filling = 'i=0; while :; do i=$((i+1)); head -c 4000000 /dev/zero > "$TMPDIR/$i"; done'
    start = time.monotonic()
    outcome = launch_script(tmp_path, filling, timeout=60.0)
    assert time.monotonic() - start < 30
    assert outcome.status is Status.CRASHED
    assert "into its folder" in outcome.reason
    assert list(tmp_path.glob("dlbench-launch-*")) == []
    assert is_well(tmp_path)


@pytest.mark.parametrize(
    ("message", "complaint"),
    [
        (b"hello\n", "expected 'begin'"),
        (b"begin\nend 99999999999999999999999999\nread\n", "expected 'reset'"),
        (b"begin\nend 5\nreset\nreset\n", "expected 'steps'"),
        (b"x" * 500, "where a word belongs"),
    ],
)
def test_a_guest_that_says_what_it_should_not_is_not_believed(message, complaint, tmp_path):
    answer = (
        '{"schema_version": 1, "status": "ok", "samples_ns": [1], "threads": {"requested": 1, "framework_says": null, '
        '"os_threads": 1, "cpu_seconds": 0.1, "wall_seconds": 0.1, "cpu_seconds_by_thread": null}}'
    )
    (tmp_path / "answer").write_text(answer)
    (tmp_path / "said").write_bytes(message)
    outcome = launch_script(
        tmp_path, f'{SAYS} {tmp_path}/said\ncp {tmp_path}/answer "$3/outcome.json"'
    )
    assert outcome.status is Status.CRASHED
    assert complaint in outcome.reason


def test_a_guest_cannot_say_when_its_process_was_started(tmp_path):
    answer = {
        "schema_version": 1,
        "status": "unsupported",
        "reason": "no such operator",
        "phases": {"start": 999.0, "import": 0.5},
    }
    (tmp_path / "answer").write_text(json.dumps(answer))
    before = time.monotonic()
    outcome = launch_script(tmp_path, f'cp {tmp_path}/answer "$3/outcome.json"')
    assert outcome.status is Status.UNSUPPORTED
    assert outcome.phases["import"] == 0.5
    assert before < outcome.phases["start"] < time.monotonic()


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
def test_no_descriptor_and_no_process_is_left_behind(tmp_path):
    assert is_well(tmp_path)
    before = len(list(Path("/proc/self/fd").iterdir())), len(psutil.Process().children())
    for body in ("exit 1", "kill -9 $PPID", "mkfifo $3/outcome.json"):
        launch_script(tmp_path, body)
    assert (len(list(Path("/proc/self/fd").iterdir())), len(psutil.Process().children())) == before
