"""What a framework copies to find out the ceilings of a GPU; none is needed here, the arrays lie on the CPU."""

from collections.abc import Callable

import pytest
from inside import Guest

from dlbench.adapters.libraries import gpus

pytestmark = pytest.mark.framework


@pytest.fixture
def torch(guests: Callable[..., Guest]) -> Guest:
    """Give a function that runs statements in PyTorch's interpreter and returns what they bind to ``answer``."""
    return guests("torch", imports=IMPORTS)


IMPORTS = """
from guest.libraries import gpus
from guest.pytorch import adapter as ceilings
"""

# Page-locked memory needs a driver: a copy stands for it, and the tensor is remembered.
PINNING = """
locked = []
def pin(tensor):
    locked.append(tensor.clone())
    return locked[-1]
torch.Tensor.pin_memory = pin
"""


@pytest.mark.slow
def test_each_copy_of_pytorch_moves_all_bytes_from_where_to_where_its_name_says(torch: Guest) -> None:
    told = torch(
        PINNING
        + """
answer = {}
for name in gpus.TRANSFERS:
    del locked[:]
    # On a device without memory what lies there can be told from what lies on the host.
    source, target = ceilings.copied_pair(name, 1000, "meta")
    answer[name] = [source.device.type, target.device.type, source.nbytes, target.nbytes,
                    any(each is source or each is target for each in locked)]
"""
    )
    assert told == {
        "copy": ["meta", "meta", 1000, 1000, False],
        "to_device_pinned": ["cpu", "meta", 1000, 1000, True],
        "to_device_pageable": ["cpu", "meta", 1000, 1000, False],
        "from_device_pinned": ["meta", "cpu", 1000, 1000, True],
        "from_device_pageable": ["meta", "cpu", 1000, 1000, False],
    }


def test_a_start_copies_and_memory_was_written_to_before(torch: Guest) -> None:
    told = torch(
        PINNING
        + """
answer, made, pair = {}, [], ceilings.copied_pair
def remembered(*given):
    made[:] = pair(*given)
    return tuple(made)
ceilings.copied_pair = remembered
for name in gpus.TRANSFERS:
    waited = []
    probe = ceilings.gpu_probe(name, 1000, "cpu", lambda: waited.append(1))
    before = [tensor.unique().tolist() for tensor in made]
    probe.start()
    probe.wait()
    answer[name] = [before, bool((made[0] == made[1]).all()), len(waited)]
"""
    )
    assert set(told) == set(gpus.TRANSFERS)
    for name, (before, copied, waited) in told.items():
        assert (copied, waited) == (True, 1), name
        assert before[0] != before[1], name
        assert name == "copy" or 0 not in (*before[0], *before[1]), name


def test_the_smallest_operator_changes_one_number(torch: Guest) -> None:
    calls, told = torch("""
        from torch.utils._python_dispatch import TorchDispatchMode
        seen = []
        class Seen(TorchDispatchMode):
            def __torch_dispatch__(self, function, types, given=(), named=None):
                seen.append(str(function) + " " + str(given[0].numel()))
                return function(*given, **(named or {}))
        probe = ceilings.gpu_probe("operator", 0, "cpu", lambda: None)
        with Seen():
            probe.start()
        answer = [seen, gpus.seconds_to_start(probe)]
    """)
    assert calls == ["aten.add_.Tensor 1"]
    assert 0 < told < 0.001


def test_a_captured_graph_starts_no_operator_by_itself(torch: Guest) -> None:
    told = torch("""
        asked = []
        ceilings.gpu_probe = lambda name, size: asked.append((name, size))
        adapters = [make("small-dense"), make("small-dense")]
        adapters[1].graphs = True
        for adapter in adapters:
            adapter.device_probe("operator", 0)
            adapter.device_probe("copy", 9)
        answer = asked
    """)
    assert told == [["operator", 0], ["copy", 9], ["copy", 9]]


@pytest.fixture
def jax(guests: Callable[..., Guest]) -> Guest:
    """Give a function that runs statements in JAX's interpreter and returns what they bind to ``answer``."""
    return guests("jax")


def test_each_copy_of_jax_moves_all_bytes_from_where_to_where_its_name_says(jax: Guest) -> None:
    told = jax("""
        import jax, numpy
        from guest.libraries import gpus
        from guest.jax import devices
        device = devices.find_device("cpu")
        puts, results = [], {}
        real = jax.device_put
        def remembered(value, target, **more):
            found = real(value, target, **more)
            puts.append([type(value).__name__ == "ndarray", getattr(value, "sharding", None), target.memory_kind])
            results["array"] = found
            return found
        jax.device_put = remembered
        answer = {}
        for name in gpus.PROBES:
            probe = devices.probe(name, 1000, device)
            if probe is None:
                answer[name] = None
                continue
            del puts[:]
            probe.start()
            probe.wait()
            moves = [[plain, getattr(home, "memory_kind", None), kind] for plain, home, kind in puts]
            answer[name] = [moves, results["array"].nbytes, bool((numpy.asarray(results["array"]) == 1).all())]
    """)
    assert told == {
        "copy": [[], 1000, True],  # by a program, not from one memory to another
        "to_device_pinned": [[[False, "pinned_host", "device"]], 1000, True],
        "to_device_pageable": [[[True, None, "device"]], 1000, True],
        "from_device_pinned": [[[False, "device", "pinned_host"]], 1000, True],
        "from_device_pageable": None,
        "operator": None,
    }


def test_a_copy_of_jax_on_the_device_is_of_an_array_of_its_own(jax: Guest) -> None:
    told = jax("""
        import jax
        from guest.libraries import gpus
        from guest.jax import devices
        program = jax.jit(jax.numpy.copy).lower(jax.ShapeDtypeStruct((1000,), "uint8")).compile().as_text()
        adapter = prepared("small-dense")
        probe = adapter.device_probe("copy", 1000)
        copied = devices._copies(1000, devices.find_device("cpu"))[gpus.COPY]()
        first, second = copied(), copied()
        apart = first.unsafe_buffer_pointer() != second.unsafe_buffer_pointer()
        answer = ["copy(" in program, gpus.seconds_in_a_row(probe) > 0, apart, first.nbytes]
        answer.append(bool((first == 1).all()))
    """)
    assert told == [True, True, True, 1000, True]


@pytest.fixture
def tensorflow(guests: Callable[..., Guest]) -> Guest:
    """Give a function that runs statements in TensorFlow's interpreter and returns what they bind to ``answer``."""
    return guests("tensorflow")


@pytest.mark.slow
def test_the_copy_of_tensorflow_is_of_a_tensor_of_its_own(tensorflow: Guest) -> None:
    told = tensorflow("""
        from guest.libraries import gpus
        from guest.tensorflow import devices as gpu
        source = gpu.filled(1000, "CPU:0")
        copies = [gpu.copied(source, "CPU:0") for _ in range(2)]
        addresses = {each._numpy().ctypes.data for each in [source] + copies}
        answer = [len(addresses), sum(int(each.shape[0]) * each.dtype.size for each in copies),
                  all(bool((each.numpy() == 1).all()) for each in copies)]
        waited = []
        found = {name: gpu.probe(name, 1000, "CPU:0", lambda: waited.append(1)) for name in gpus.PROBES}
        found["copy"].start()
        found["copy"].wait()
        answer += [sorted(name for name in found if found[name]), len(waited)]
        try:
            gpu.probe("copy", 1000, "GPU:0")  # there is none, and TensorFlow takes the CPU in its place
            answer.append("")
        except Exception as error:
            answer.append(str(error))
    """)
    assert told[:5] == [3, 2000, True, ["copy"], 1]
    assert "GPU:0" in told[5]
