"""What is particular to CNTK, shown by the guest in CNTK's own interpreter."""

import os
from pathlib import Path

import asked_of_frameworks as asked
import pytest
from inside import Guest

from dlbench.adapters.libraries import blas

pytestmark = pytest.mark.framework

FRAMEWORK = "cntk"


#: A network that a second thread is worth having for, and whose products tell one kind of kernel from another.
WIDE = """
wide = SMALL["small-dense"]._replace(family=families.Feedforward(2048, (2048,), 2048, "sigmoid"))

def wide_step(**options):
    adapter = make("small-dense", **options)
    adapter.prepare(wide, batches.initial_weights(wide), batches.mini_batch(wide, 256))
    adapter.step()
    return adapter
"""


@asked.of_every_framework(
    asked.reference(kernels="widest"),
    asked.reference(kernels="mkl"),
    asked.rate("id(adapter.trainer)"),
    asked.reset("id(adapter.trainer)"),
    asked.memory(
        {
            "cntk.Parameter((1 << 14, 1 << 15), init=0.0).value": True,
            'large.eval({inputs: np.ones((1 << 12, 4), "float32")})': True,
            "cntk.times(cntk.Constant(np.ones((3, 3))), cntk.Constant(np.ones((4, 4))))": False,
        },
        """
adapter = prepared("small-dense")
adapter.step()
inputs = cntk.input_variable(4)
large = cntk.times_transpose(inputs, cntk.Parameter((1 << 15, 4), init=0.1))
""",
        256 << 20,
    ),
    asked.capabilities(gpu=False, automatic_gradients=True, several_processes=True),
    asked.description(version="2.7", framework="…", blas="…", kernels="…", execution="…", optimizer="…", threads=1),
    asked.description(settings={"kernels": "mkl"}, kernels="MKL's own choice"),
)
def test_it_answers_as_every_framework_does(guest: Guest, check: asked.Check) -> None:
    check(guest)


def test_padding_is_symmetric_whatever_the_stride(guest: Guest) -> None:
    layers = """
from guest.cntk import networks as ours
def evaluated(image, build):
    held = np.ascontiguousarray(image.transpose(0, 3, 1, 2))
    inputs = cntk.input_variable(held.shape[1:])
    return [build(inputs).eval({inputs: held}).transpose(0, 2, 3, 1)]
def convolved(image, weight, stride, padding):
    filters = np.ascontiguousarray(weight.transpose(3, 2, 0, 1))
    builder = ours.Builder({"c.weight": filters})
    return evaluated(image, lambda inputs: builder.convolution(inputs, "c", weight.shape[0], stride, padding))
def pooled(image, kernel, stride, padding):
    return evaluated(image, lambda inputs: ours.max_pool(inputs, families.MaxPool(kernel, stride, padding)))
"""
    cases = [(15, 5, 2, 2), (16, 3, 2, 1), (14, 3, 4, 1), (12, 7, 4, 3), (19, 11, 4, 2), (10, 4, 3, 1), (9, 2, 2, 0)]
    asked.check_padding_is_symmetric(guest, layers, cases)


def test_gates_change_places_and_back(guest: Guest) -> None:
    once, twice = guest("""
        from guest.cntk.networks import swap_gates
        rows = np.repeat(list("ifgo"), 2)
        answer = "".join(swap_gates(rows)), "".join(swap_gates(swap_gates(rows)))
    """)
    assert once == "iiggffoo"
    assert twice == "iiffggoo"


def test_threads_are_cntks_word_and_no_more_than_there_are_cpus(guest: Guest) -> None:
    """What was asked for and not given is seen in the framework's word."""
    said, cpus = guest("""
        answer = [make("small-dense", threads=asked).effective_threads() for asked in (1, 2, 4096)]
        answer = answer, len(os.sched_getaffinity(0))
    """)
    assert said == [min(asked, cpus) for asked in (1, 2, 4096)]


def test_no_count_asked_for_leaves_cntks_default(guest: Guest) -> None:
    before, after = guest("""
        before = cntk.cntk_py.get_max_num_cputhreads()
        answer = before, make("small-dense", threads=0).effective_threads()
    """)
    assert before == after


@pytest.mark.parametrize("asked", [1, 2])
def test_as_many_threads_work_as_were_asked_for(guest: Guest, asked: int) -> None:
    """CNTK fills matrices on two threads whatever it was told; the limit on OpenMP's threads reaches that as well."""
    if asked > len(os.sched_getaffinity(0)):
        pytest.skip("there are fewer CPUs")
    spent = guest(
        WIDE
        + f"""
def seconds_by_thread():
    found = dict()
    for thread in os.listdir("/proc/self/task"):
        with open("/proc/self/task/%s/schedstat" % thread) as file:
            found[thread] = int(file.read().split()[0]) * 1e-9
    return found
adapter = wide_step(threads={asked})
before = seconds_by_thread()
for _ in range(10):
    adapter.step()
answer = sorted(value - before.get(thread, 0.0) for thread, value in seconds_by_thread().items())
""",
        OMP_THREAD_LIMIT=str(asked),
    )
    assert len([seconds for seconds in spent if seconds > 0.02 * spent[-1]]) == asked, spent


def test_the_rate_is_of_the_mean_gradient(guest: Guest) -> None:
    """The same mini-batch twice over moves the weights as far as once."""
    ratio = guest("""
        moves = []
        network = SMALL["small-recurrent"]
        batch = batches.mini_batch(network, 4)
        for times in (1, 2):
            adapter, weights = make("small-recurrent"), batches.initial_weights(network)
            doubled = batches.Batch(np.tile(batch.inputs, (times, 1)), np.tile(batch.labels, (times, 1)))
            adapter.prepare(network, weights, doubled)
            adapter.set_learning_rate(1.0)
            adapter.step()
            moves.append(dict(adapter.parameters())["fc.bias"] - weights["fc.bias"])
        answer = float(np.linalg.norm(moves[1] - moves[0]) / np.linalg.norm(moves[0]))
    """)
    assert ratio < 1e-4


def test_the_mini_batch_is_handed_over_once(guest: Guest) -> None:
    """What the step is given are CNTK's own values, and it makes no others."""
    kinds, more = guest("""
        answer = []
        for name in built():
            adapter = prepared(name)
            answer += [type(value).__name__ for value in adapter.arguments.values()]
            held = dict(adapter.arguments)
            def refuse(*arguments, **options):
                raise AssertionError("a value was made within the step")
            real, cntk.core.Value.__init__ = cntk.core.Value.__init__, refuse
            adapter.step()
            cntk.core.Value.__init__ = real
        answer = sorted(set(answer)), len(answer) - 2 * len(built())
    """)
    assert kinds == ["Value"]
    assert more == 0


def test_wide_kernels_are_faster_where_mkl_does_not_take_them_itself(guest: Guest) -> None:
    if blas.widest_mkl_kernels(Path("/proc/cpuinfo").read_text()) is None:
        pytest.skip("MKL chooses well on this processor")
    seconds = {
        kernels: guest(
            WIDE
            + f"""
import time
adapter = wide_step(kernels={kernels!r})
start = time.process_time()
for _ in range(5):
    adapter.step()
answer = time.process_time() - start
"""
        )
        for kernels in ("widest", "mkl")
    }
    assert seconds["widest"] < 0.8 * seconds["mkl"]


def test_it_starts_without_warning_of_the_linux(guest: Guest) -> None:
    heard, without_ours = guest("""
        import warnings
        answer = []
        for ours in (True, False):
            with warnings.catch_warnings(record=True) as caught:
                if not ours:
                    warnings.simplefilter("always")
                cntk.cntk_py_init.cntk_check_distro_info()
            answer.append(len(caught))
    """)
    assert heard == 0
    assert without_ours in (0, 1)  # none on the one Linux it knows


def test_the_product_is_a_product(guest: Guest) -> None:
    error = guest("""
        product = make("small-dense").multiply(64)
        random = np.random.RandomState(0)
        left, right = (random.rand(64, 64).astype(np.float32) for _ in range(2))
        found = list(product()[1].values())[0].asarray()
        answer = float(abs(found.reshape(64, 64) - left.dot(right)).max())
    """)
    assert error < 1e-4
