"""CPUs, processes, and what the system saw of a launch."""

import json
import mmap
import os
import subprocess
import sys
import threading
import time

import pytest
from known_networks import data_of

from dlbench.adapters import protocol
from dlbench.adapters.launch import evidence
from dlbench.adapters.launch.evidence import LaunchCounters
from dlbench.adapters.protocol import Cell, Launch, Protocol

pytestmark = pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity"), reason="this system cannot bind a process to CPUs"
)


@pytest.fixture(autouse=True)
def as_before():
    before = os.sched_getaffinity(0)
    yield sorted(before)
    os.sched_setaffinity(0, before)


@pytest.mark.parametrize("cpus", [[4095], [0, 4095], [-1], [10**30], ["0"], "0", 5, {"a": 1}])
def test_impossible_cpus_are_left_to_the_worker(tmp_path, as_before, cpus):
    cell = Cell("null", "null", "null", "fcn5", "cpu", 1, 8)
    protocol.write_launch(
        str(tmp_path), Launch(cell, Protocol(), {}, str(tmp_path), network=data_of("fcn5"))
    )
    content = json.loads((tmp_path / protocol.CELL_FILE).read_text())
    (tmp_path / protocol.CELL_FILE).write_text(json.dumps({**content, "cpus": cpus}))
    evidence.bind(str(tmp_path))
    assert sorted(os.sched_getaffinity(0)) == as_before  # nor is a part of it set
    if isinstance(cpus, list) and all(isinstance(cpu, int) for cpu in cpus):
        assert "cannot be bound" in evidence.binding_refusal(cpus)


BUSY = "import time; until = time.process_time() + {0}\nwhile time.process_time() < until: pass\n"


def test_a_living_helper_and_its_own_child_are_seen():
    before = evidence.companions()
    nested = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {BUSY.format(30)!r}])"
    helper = subprocess.Popen([sys.executable, "-c", nested], start_new_session=True)
    try:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            spent = evidence.cpu_seconds_by_process(before, evidence.companions())
            if len(spent) >= 3 and max(spent) > 0.3:
                break
            time.sleep(0.05)
        assert len(spent) >= 3  # the helper, its child, and those that ended
        assert max(spent) > 0.3
    finally:
        os.killpg(helper.pid, 9)
        helper.wait()


def burn(seconds):
    """Use so many seconds of this thread's CPU time, however long that takes."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


def between(work):
    before = evidence.snapshot()
    work()
    return before, evidence.snapshot()


def busy_threads(seconds_of_each):
    """Burn CPU in threads of their own that still stand when the region ends."""
    burnt, release = [threading.Event() for _ in seconds_of_each], threading.Event()

    def work(seconds, done):
        burn(seconds)
        done.set()
        release.wait()

    threads = [
        threading.Thread(target=work, args=pair)
        for pair in zip(seconds_of_each, burnt, strict=True)
    ]
    try:
        return between(
            lambda: [[thread.start() for thread in threads], [done.wait() for done in burnt]]
        )
    finally:
        release.set()
        for thread in threads:
            thread.join()


def test_threads_that_burn_are_seen_in_the_spread_the_busiest_first():
    before, after = busy_threads([0.4, 0.1, 0.0])
    threads = evidence.thread_evidence(3, 2, before, after)
    if threads.cpu_seconds_by_thread is None:
        pytest.skip("this system lists no threads in /proc/self/task")
    first, second = threads.cpu_seconds_by_thread[:2]
    assert first >= 0.35
    assert 0.05 <= second <= 0.35
    assert max(threads.cpu_seconds_by_thread[2:]) < 0.05  # those that rest, the main one among them
    assert threads.os_threads >= 4
    assert (threads.requested, threads.framework_says) == (3, 2)
    assert threads.cpu_seconds >= 0.45
    assert threads.wall_seconds > 0


def test_evidence_that_the_system_does_not_give_is_none(monkeypatch):
    monkeypatch.setattr(evidence, "read_file", lambda path: None)

    def no_folder(path):
        raise FileNotFoundError(path)

    monkeypatch.setattr(evidence.os, "listdir", no_folder)
    before, after = between(lambda: burn(0.02))
    threads, contention = (
        evidence.thread_evidence(4, None, before, after),
        evidence.contention(before, after),
    )
    assert (threads.os_threads, threads.cpu_seconds_by_thread) == (None, None)
    assert threads.cpu_seconds > 0
    for name in (
        "run_queue_seconds",
        "pressure_seconds",
        "pressure_avg10_before",
        "steal_seconds",
        "throttled_seconds",
    ):
        assert getattr(contention, name) is None
    assert contention.voluntary_switches >= 0
    assert evidence.peak_memory_bytes() > 10**6  # from getrusage


def reading(threads=None, waited=None, involuntary=0, **companions):
    """Return a snapshot with CPU seconds and waits by thread id; all else stands still."""
    plain = dict.fromkeys(("pressure", "pressure_avg10", "steal", "machine_cpu", "throttled"))
    counts = {"involuntary": involuntary, "voluntary": 0, "major_faults": 0}
    companion_counters = evidence.Companions(**{"living": {}, "ended": 0.0, **companions})
    return LaunchCounters(
        0.0, 0.0, threads, waited, **counts, **plain, companions=companion_counters
    )


def test_threads_that_come_and_go_never_give_a_negative_time():
    before = reading(
        {"main": 5.0, "gone": 9.0},
        {"main": 1.0, "gone": 7.0},
        living={"p": 4.0, "q": 1.0},
        ended=2.0,
    )
    after = reading(
        {"main": 6.0, "new": 3.0}, {"main": 0.5, "new": 0.25}, living={"q": 1.5}, ended=6.5
    )
    # A new thread's time is all of the region's; what p had before it ended is not.
    assert evidence.thread_evidence(1, 1, before, after).cpu_seconds_by_thread == [3.0, 1.0, 0.5]
    assert evidence.cpu_seconds_by_process(before.companions, after.companions) == [0.5, 0.5]
    assert evidence.contention(before, after).run_queue_seconds == 0.25
    unseen = (
        evidence.thread_evidence(1, 1, before, reading()),
        evidence.contention(reading(), after),
    )
    assert (unseen[0].cpu_seconds_by_thread, unseen[1].run_queue_seconds) == (None, None)


V1 = {"/proc/self/cgroup": "9:memory:/a\n5:cpu,cpuacct:/jobs/42\n0::/jobs/42\n"}
V2 = {"/proc/self/cgroup": "0::/slice/scope\n"}
STAT_V1 = "nr_periods 9\nnr_throttled 3\nthrottled_time %d\n"
STAT_V2 = "usage_usec 7\nnr_throttled 3\nthrottled_usec %d\n"


@pytest.mark.parametrize(
    ("files", "seconds"),
    [
        (V1, None),
        ({**V1, "/sys/fs/cgroup/cpu,cpuacct/jobs/42/cpu.stat": STAT_V1 % 3e9}, 3.0),
        # The quota may be that of a group around it: each counts its own throttling alone.
        (
            {
                **V1,
                "/sys/fs/cgroup/cpu/jobs/42/cpu.stat": STAT_V1 % 0,
                "/sys/fs/cgroup/cpu/jobs/cpu.stat": STAT_V1 % 2e9,
                "/sys/fs/cgroup/cpu/cpu.stat": STAT_V1 % 5e8,
            },
            2.5,
        ),
        (
            {
                **V2,
                "/sys/fs/cgroup/slice/scope/cpu.stat": STAT_V2 % 4e6,
                "/sys/fs/cgroup/cpu.stat": "usage_usec 9\n",
            },
            4.0,
        ),
        ({**V2, "/sys/fs/cgroup/slice/cpu.stat": STAT_V2 % 4e6}, 4.0),
        # A container sees its own group as the mount point, and may see its path on the host or
        # none.
        ({**V2, "/sys/fs/cgroup/cpu.stat": STAT_V2 % 1e6}, 1.0),
        ({"/proc/self/cgroup": "0::/../..\n", "/sys/fs/cgroup/cpu.stat": STAT_V2 % 1e6}, 1.0),
    ],
)
def test_the_throttling_of_every_group_around_the_process_is_seen(monkeypatch, files, seconds):
    monkeypatch.setattr(evidence, "read_file", files.get)
    assert evidence._throttled() == (None if seconds is None else pytest.approx(seconds))


LARGE = """
import mmap, sys
with mmap.mmap(-1, 60_000_000) as fresh:
    for page in range(0, len(fresh), mmap.PAGESIZE):
        fresh[page] = 1
    print("there", flush=True)
    sys.stdin.readline()
print("gone", flush=True)
sys.stdin.readline()
"""


def test_peak_memory_is_that_of_all_processes():
    if not evidence.reset_peak_memory():
        pytest.skip("this kernel does not forget a process's peak")
    before = evidence.peak_memory_bytes()
    helper = subprocess.Popen(
        [sys.executable, "-c", LARGE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert helper.stdin is not None
    assert helper.stdout is not None
    try:
        assert helper.stdout.readline() == "there\n"
        assert evidence.peak_memory_bytes() - before >= 60_000_000
        helper.stdin.write("\n")
        helper.stdin.flush()
        assert helper.stdout.readline() == "gone\n"
        assert evidence.peak_memory_bytes() - before >= 60_000_000
        assert evidence.reset_peak_memory()
        assert evidence.peak_memory_bytes() - before < 60_000_000
    finally:
        helper.kill()
        helper.communicate()


PAGES = 2000


def test_faults_and_switches_belong_to_the_sample_in_which_they_happened():
    size = mmap.PAGESIZE
    counter = evidence.SampleCounter()
    counter.begin()
    counter.note()
    with mmap.mmap(-1, PAGES * size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as fresh:
        if hasattr(mmap, "MADV_NOHUGEPAGE"):
            fresh.madvise(mmap.MADV_NOHUGEPAGE)
        for page in range(PAGES):
            fresh[page * size] = 1
        counter.note()
        for page in range(PAGES):
            fresh[page * size] = 2  # there already
        counter.note()
        time.sleep(0.01)
        counter.note()
    counts = counter.counts(skipped=1)
    first, second, third = counts.minor_faults
    assert PAGES <= first < PAGES + 500
    assert second < 100
    assert third < 100
    assert counts.voluntary_switches[2] >= 1  # it slept
    assert len(counts.involuntary_switches) == 3


def test_a_new_loop_of_samples_does_not_count_what_happened_before_it():
    counter = evidence.SampleCounter()
    counter.begin()
    with mmap.mmap(-1, PAGES * mmap.PAGESIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as fresh:
        fresh.write(bytes(len(fresh)))
        counter.begin()
        counter.note()
    assert counter.counts(0).minor_faults[0] < 100


def test_a_fault_costs_less_than_a_tenth_of_a_millisecond():
    cost = evidence.fault_seconds()
    assert cost is not None
    assert 1e-8 < cost < 1e-4
