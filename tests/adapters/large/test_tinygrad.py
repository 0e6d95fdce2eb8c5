"""What is particular to tinygrad, shown by the guest in tinygrad's own interpreter."""

from pathlib import Path

import asked_of_frameworks as asked
import pytest
from inside import Guest

pytestmark = pytest.mark.framework

FRAMEWORK = "tinygrad"

#: What a step is made of, and where it is made: neither changes with weights, mini-batch or rate.
CAPTURED = """(id(adapter.train.captured), [
    id(each.uop.base.realized) for each in [*adapter.weights.values(), adapter.inputs, adapter.labels]
])"""


@asked.of_every_framework(
    asked.reference(only=["small-dense", "small-convolutional", "one-hot-gru", "small-elman", "small-attention"]),
    asked.reference(only=["small-recurrent", "one-hot-gru", "small-elman"], gates="kept"),
    # At a rate of 0 in the first step and the third: the second is captured, with a rate of its own.
    asked.rate(),
    asked.reset(CAPTURED, only=["small-dense", "small-recurrent"]),
    asked.completion(),
    asked.threads_of_variables("tinygrad"),
    asked.memory(
        {
            "tinygrad.Tensor.empty(1 << 45).contiguous().realize().numpy()": True,
            "np.empty(1 << 50)": True,
            "tinygrad.Tensor.ones(3, 3) @ tinygrad.Tensor.ones(4, 4)": False,
        }
    ),
    asked.capabilities(gpu=True, automatic_gradients=True),
    asked.description(
        "optimizer execution",
        version="0.13.0",
        device="CPU",
        renderer="ClangJITRenderer",
        compiler="Debian clang version 19.1.7…",
        cpu_count="1",
        beam="0",
    ),
)
def test_it_answers_as_every_framework_does(guest: Guest, check: asked.Check) -> None:
    check(guest)


def test_without_a_compiler_it_is_refused(guest: Guest) -> None:
    said = guest("""
        os.environ["CC"] = "/not/there/clang"
        answer = [make("small-dense").supports(SMALL["small-dense"])]
    """)
    asked.check_reasons(said, ["/not/there/clang cannot be run"])


def test_kernels_are_kept_for_the_next_process_apart_for_each_compiler(guest: Guest, tmp_path: Path) -> None:
    program = """
        import shutil, stat, sqlite3
        from tinygrad import helpers
        from guest.libraries import software
        {change}
        adapter = prepared("small-dense")
        adapter.step(); adapter.synchronize()
        kept = sqlite3.connect(helpers.CACHEDB)
        tables = [name for (name,) in kept.execute("SELECT name FROM sqlite_master WHERE name LIKE 'compile_%'")]
        answer = helpers.CACHEDB, sum(kept.execute("SELECT count(*) FROM '%s'" % each).fetchone()[0] for each in tables)
    """
    path, count = guest(program.format(change=""))
    assert Path(path).is_relative_to(tmp_path)
    assert count
    assert guest(program.format(change="")) == [path, count]
    assert guest(program.format(change='software.compiler = lambda command: ("another clang", "")'))[0] != path


def test_the_loss_is_that_before_the_update(guest: Guest) -> None:
    """A loss is a promise: kept until it is read, it would be computed from the updated weights."""
    first, second, third = guest("""
        adapter = prepared("small-dense")
        adapter.set_learning_rate(0.0)
        answer = []
        for rate in (0.0, 0.5, 0.0):
            adapter.set_learning_rate(rate)
            adapter.step(); adapter.synchronize()
            answer.append(adapter.last_loss())
    """)
    assert first == second
    assert third < second


@pytest.mark.parametrize("threads", [1, 2])
def test_a_kernel_is_cut_into_as_many_slices_as_threads(guests, threads: int) -> None:
    """A large product names as many of tinygrad's threads at work as CPU_COUNT says, its first one among them."""
    guest = guests(FRAMEWORK, CPU_COUNT=str(threads))
    working = guest("""
        import threading
        multiply = make("small-dense").multiply(512)
        for _ in range(3):
            multiply()
        answer = sum(type(each).__name__ == "CPUWorker" for each in threading.enumerate())
    """)
    assert working == threads
