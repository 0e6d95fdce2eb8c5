"""What is particular to MindSpore, shown by the guest in MindSpore's own interpreter, which is bound to one CPU."""

import os
from collections.abc import Callable

import asked_of_frameworks as asked
import pytest
from inside import Guest
from known_networks import NETWORKS

from dlbench.adapters.protocol import Outcome, Status
from dlbench.reports.thread_evidence import wanting_threads

pytestmark = pytest.mark.framework

FRAMEWORK = "mindspore"


def test_threads_are_the_cpus_that_it_is_bound_to(guest: Guest) -> None:
    said = guest("""
        from guest.launch import contract
        answer = [contract.supports(make("small-dense", threads=threads), SMALL["small-dense"])
                  for threads in (0, 1, 2)]
    """)
    asked.check_reasons(said, ["", "", "--affinity bound"])


def test_loops_too_long_to_unroll_are_refused(guest: Guest) -> None:
    said = guest("""
        gru = SMALL["one-hot-gru"]
        answer = []
        for layers, steps, cell in ((2, 50, "gru"), (3, 50, "gru"), (1, 101, "rnn"), (3, 500, "lstm")):
            family = gru.family._replace(layers=layers, steps=steps, cell=cell)
            answer.append(make("one-hot-gru").supports(gru._replace(family=family)))
    """)
    asked.check_reasons(said, ["", "3 layers of 50 steps", "1 layers of 101 steps", ""])


@pytest.mark.parametrize("count", [1, 2])
def test_cpus_bound_what_it_uses(launch: Callable[..., Outcome], count: int) -> None:
    """Its threads share the CPUs of the mask, and there are more of them than one."""
    if len(os.sched_getaffinity(0)) < count:
        pytest.skip("two CPUs are needed")
    outcome = launch("mindspore", "graph", NETWORKS["fcn5"], batch_size=16, threads=count)
    assert outcome.status is Status.OK, outcome.reason
    assert len(outcome.cpus or []) == count
    threads = outcome.threads
    assert threads is not None
    assert threads.cpu_seconds <= (count + 0.05) * threads.wall_seconds + 0.04
    assert wanting_threads(threads, outcome.contention) > 1.3
