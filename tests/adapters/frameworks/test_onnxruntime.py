"""What is particular to ONNX Runtime, looked at inside its own interpreter."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.framework

ROOT = Path(__file__).parents[3]

PRELUDE = """
import importlib, json, os, sys, types
import numpy as np
package = types.ModuleType("guest"); package.__path__ = [{adapters!r}]; sys.modules["guest"] = package
sys.path.append({tests!r})
import small_networks
module = importlib.import_module("guest.onnxruntime.adapter")
artifacts = importlib.import_module("guest.onnxruntime.artifacts")
onnx_networks = importlib.import_module("guest.onnxruntime.networks")
networks = importlib.import_module("guest.networks")
batches = importlib.import_module("guest.launch.batches")
protocol = importlib.import_module("guest.protocol")
NETWORKS = dict(networks.NETWORKS, **small_networks.small_networks(networks))

def make(name, threads=1, batch_size=None, **settings):
    network = NETWORKS[name]
    size = batch_size or network.batch_size
    cell = protocol.Cell("onnxruntime", "onnxruntime", "training", name, "cpu", threads, size)
    adapter = module.ADAPTER(cell, settings, {cache!r})
    return adapter, network, size

def prepared(name, **options):
    adapter, network, size = make(name, **options)
    weights = batches.initial_weights(network)
    adapter.prepare(network, weights, batches.mini_batch(network, size))
    return adapter, weights

def answer(value):
    print(json.dumps(value))
    sys.stdout.flush()
    os._exit(0)
"""


@pytest.fixture
def guest(framework_python: Callable[[str], Path], tmp_path: Path) -> Callable[[str], Any]:
    """Give the function that runs code in the framework's interpreter and returns what it answers."""
    interpreter = framework_python("onnxruntime")
    names = {"adapters": ROOT / "adapters", "tests": ROOT / "tests" / "adapters", "cache": tmp_path / "cache"}
    prelude = PRELUDE.format(**{key: str(value) for key, value in names.items()})

    def run(code: str) -> Any:
        done = subprocess.run([interpreter, "-I", "-c", prelude + code], capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr[-3000:]
        return json.loads(done.stdout.splitlines()[-1])

    return run


SMALL = ["small-dense", "small-convolutional", "small-residual", "small-recurrent", "wide-recurrent"]


@pytest.mark.parametrize("name", SMALL)
def test_parameters_come_back_as_they_went_in(guest: Callable[[str], Any], name: str) -> None:
    found = guest(f"""
adapter, weights = prepared({name!r})
back = dict(adapter.parameters())
answer([sorted(back) == sorted(weights), all(np.array_equal(back[key], weights[key]) for key in weights)])
""")
    assert found == [True, True]


def test_gates_are_permuted_and_only_in_lstm_layers(guest: Callable[[str], Any]) -> None:
    found = guest("""
network = NETWORKS["small-recurrent"]
value = np.arange(20.0).reshape(20, 1)
there = onnx_networks.from_canonical(network, "lstm1.input_weight", value)
back = onnx_networks.to_canonical(network, "lstm1.input_weight", there)
same = onnx_networks.from_canonical(network, "fc.weight", value)
answer([there[:, 0].tolist(), np.array_equal(back, value), np.array_equal(same, value)])
""")
    # Five units: input and forget stay, output comes before cell.
    assert found == [[*range(10), *range(15, 20), *range(10, 15)], True, True]


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_each_session_has_a_pool_of_the_threads_requested(guest: Callable[[str], Any], threads: int) -> None:
    says, started = guest(f"""
adapter, network, size = make("small-dense", threads={threads})
before = len(os.listdir("/proc/self/task"))
adapter.prepare(network, batches.initial_weights(network), batches.mini_batch(network, size))
adapter.step()
answer([adapter.effective_threads(), len(os.listdir("/proc/self/task")) - before])
""")
    assert says == threads
    # The calling thread works too; the training session and the SGD session start the others, each its own.
    assert started == 2 * (threads - 1)


def test_waiting_threads_spin_only_while_there_is_a_core_for_each(guest: Callable[[str], Any]) -> None:
    found = guest("""
cores = len(os.sched_getaffinity(0))
spins = [make("small-dense", threads=n)[0].describe()["allow_spinning"] for n in (1, cores, cores + 1)]
forced = [make("small-dense", threads=1, spin=how)[0].describe()["allow_spinning"] for how in ("always", "never")]
answer([spins, forced])
""")
    assert found == [[True, True, False], [True, False]]


def test_a_new_rate_holds_from_the_next_step_and_keeps_the_sessions(guest: Callable[[str], Any]) -> None:
    found = guest("""
adapter, weights = prepared("small-dense")
sessions = adapter.module._model, adapter.optimizer._optimizer
def move(rate):
    before = {name: value.copy() for name, value in adapter.parameters()}
    adapter.set_learning_rate(rate)
    adapter.step()
    return max(float(np.abs(value - before[name]).max()) for name, value in adapter.parameters())
still, small, large = move(0.0), move(1e-3), move(1e-1)
kept = (adapter.module._model, adapter.optimizer._optimizer) == sessions
answer([still, large / small, kept])
""")
    assert found[0] == 0.0
    # Gradients change little in so short a way.
    assert found[1] == pytest.approx(100.0, rel=0.05)
    assert found[2]


def test_gradients_do_not_accumulate_from_step_to_step(guest: Callable[[str], Any]) -> None:
    first, second = guest("""
adapter, weights = prepared("small-dense")
adapter.set_learning_rate(1e-4)
def move():
    before = {name: value.copy() for name, value in adapter.parameters()}
    adapter.step()
    return float(sum(np.abs(value - before[name]).sum() for name, value in adapter.parameters()))
answer([move(), move()])
""")
    assert second == pytest.approx(first, rel=0.02)


def test_the_mini_batch_is_used_where_it_lies(guest: Callable[[str], Any]) -> None:
    assert guest("""
network = NETWORKS["small-convolutional"]
adapter, _, size = make("small-convolutional")
batch = batches.mini_batch(network, size)
adapter.prepare(network, batches.initial_weights(network), batch)
answer([value.data_ptr() == array.ctypes.data for value, array in zip(adapter.inputs, batch)])
""") == [True, True]


def test_nothing_is_left_in_the_cache_and_torch_is_never_imported(guest: Callable[[str], Any]) -> None:
    assert guest("""
adapter, weights = prepared("small-dense")
answer([os.listdir(adapter.cache_directory), "torch" in sys.modules])
""") == [[], False]


def test_both_forms_of_the_loss_train_alike(guest: Callable[[str], Any]) -> None:
    fused, split = guest("""
def losses(**settings):
    adapter, weights = prepared("small-recurrent", **settings)
    adapter.set_learning_rate(1.0)
    found = []
    for _ in range(3):
        adapter.step()
        found.append(adapter.last_loss())
    return found
answer([losses(fused_loss=True), losses(fused_loss=False)])
""")
    assert fused == pytest.approx(split, rel=1e-5)
    assert fused[2] < fused[0]


def test_running_out_of_memory_is_recognised(guest: Callable[[str], Any]) -> None:
    recognised, text, other = guest("""
import resource
adapter, network, size = make("small-dense", batch_size=3000000)
weights, batch = batches.initial_weights(network), batches.mini_batch(network, size)
adapter.prepare(network, weights, batch)
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 2**26, resource.RLIM_INFINITY))
try:
    adapter.step()
except Exception as error:
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    answer([adapter.is_out_of_memory(error), str(error), adapter.is_out_of_memory(RuntimeError("wrong shape"))])
answer([False, "no exception", False])
""")
    assert recognised, text
    assert not other


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fcn5", "lstm32"])
def test_full_networks_agree_with_the_reference(launch: Callable[..., Any], name: str) -> None:
    outcome = launch("onnxruntime", "training", name)
    assert outcome.status == "ok", outcome.reason
    assert outcome.parity.verdict == "agrees"
    assert outcome.threads.framework_says == 1
