"""The GPU of a launch is sampled while the launch lasts, and the launch's processes are known from others'."""

import os
import subprocess
import sys

import psutil
import pytest
from pretended_gpus import SECOND, nvml

from dlbench.suites.measuring.launcher import MARK
from dlbench.suites.measuring.telemetry_of_launch import of_a_launch, while_sampled

pytestmark = pytest.mark.alone

WORKING = f"fake.FakeNvml(fake.SimulatedGpu().board(uuid={SECOND!r}))"


def test_the_sampling_spans_the_launch():
    playing = nvml(WORKING)
    opened = []
    given, told = while_sampled(SECOND, playing, lambda: opened.append(playing.opened) or "given")
    assert (given, opened, playing.opened) == ("given", [1], 0)
    assert told["gpu"]["uuid"] == SECOND
    assert told["samples"]["at"][0] <= told["launched_at"] <= told["samples"]["at"][-1]


def test_what_a_launch_raises_ends_the_sampling_and_comes_through():
    playing = nvml(WORKING)
    with pytest.raises(ZeroDivisionError):
        while_sampled(SECOND, playing, lambda: 1 // 0)
    assert playing.opened == 0


# A process whose parent ends at once, so that it is no longer of this one's tree; it prints its number and waits.
LEAVES = (
    "import os, sys, time\nif os.fork(): os._exit(0)\nos.setsid()\nprint(os.getpid(), flush=True)\nsys.stdin.read()\n"
)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("marked", [True, False])
def test_a_process_that_left_its_launchs_tree_is_known_by_its_mark(marked):
    environment = {name: value for name, value in os.environ.items() if name != MARK}
    child = subprocess.Popen(
        [sys.executable, "-I", "-c", LEAVES],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**environment, **({MARK: "/somewhere"} if marked else {})},
    )
    with child:
        number = int(child.stdout.readline())
        child.wait()  # its parent is gone
        if os.getpid() in [each.pid for each in psutil.Process(number).parents()]:
            pytest.skip("this process adopts orphans")
        assert of_a_launch(number) is marked
