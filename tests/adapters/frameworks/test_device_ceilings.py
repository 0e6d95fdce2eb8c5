"""What a framework copies to find out the ceilings of a GPU; none is needed here, the arrays lie on the CPU."""

from collections.abc import Callable

import pytest
from inside import Guest

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
