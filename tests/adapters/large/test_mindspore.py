"""What is particular to MindSpore, shown by the guest in MindSpore's own interpreter, which is bound to one CPU."""

import os
from collections.abc import Callable

import asked_of_frameworks as asked
import pytest
from inside import Guest
from known_networks import NETWORKS

from dlbench.adapters.protocol import Outcome, Status
from dlbench.reports.flags import wanting_threads

pytestmark = pytest.mark.framework

FRAMEWORK = "mindspore"

#: How often the step was compiled.
COMPILED = "len(adapter.train.compile_cache)"
UPDATES = ("sgd", "descent")


@asked.of_every_framework(
    *(asked.reference(update=update) for update in UPDATES),
    asked.one_bias("[each.asnumpy() for each in adapter.built.cell.layers.layers.b_hh_list]"),
    asked.no_word_on_threads(),
    *(asked.rate(COMPILED, update=update) for update in UPDATES),
    asked.reset(f"[{COMPILED}, *map(id, adapter.built.parameters.values())]"),
    asked.reset(COMPILED, update="descent"),
    *(asked.completion(update=update) for update in UPDATES),
    asked.memory(
        {
            "mindspore.ops.zeros((1 << 16, 1 << 20)).asnumpy()": True,
            "np.empty(1 << 50)": True,
            "mindspore.ops.matmul(mindspore.ops.ones((3, 3)), mindspore.ops.ones((4, 4))).asnumpy()": False,
        }
    ),
    asked.capabilities(gpu=False, automatic_gradients=True),
    asked.description("execution", version="2.10.0", optimizer="SGD", onednn_max_cpu_isa="AVX2"),
)
def test_it_answers_as_every_framework_does(guest: Guest, check: asked.Check) -> None:
    check(guest)


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
