"""What `device_ceilings` times on a GPU, by JAX's own copies.

Left out are the smallest operator, since a step is one program whose operators XLA starts itself, and the copy back
into ordinary memory, since an array keeps what it was once read as and is not read again.
"""

from typing import Any, Callable, Dict, List, Optional

import jax
import numpy as np

from ..libraries import device_ceilings
from ..libraries.device_ceilings import Probe
from . import devices


def probe(name: str, size: int, device: Any) -> Optional[Probe]:
    """Return how JAX does what this name of `device_ceilings.NAMES` says, with arrays of so many bytes; None: not.

    Every array is written to before: pages of the host that never were may all be one.
    """
    copy = _copies(size, device).get(name)
    if copy is None:
        return None
    copied = copy()
    # All since the last wait, as nobody promises that transfers end in the order in which they began.
    results: List[Any] = []

    def start() -> None:
        if name == device_ceilings.COPY:
            del results[:]  # a program's runs do; and the device need not hold all of their results
        results.append(copied())

    def wait() -> None:
        jax.block_until_ready(results)
        del results[:]

    return Probe(start, wait)


def _copies(size: int, device: Any) -> Dict[str, Callable[[], Callable[[], Any]]]:
    """Return by name what makes the array that is copied, and gives what copies it once."""
    there, pinned = devices.in_memory(device, "device"), devices.in_memory(device, "pinned_host")

    def between(source: Any, target: Any) -> Callable[[], Any]:
        # A copy, even where the device could read the host's memory in its place.
        return lambda: jax.device_put(source, target, may_alias=False)

    def on_device() -> Callable[[], Any]:
        copied, source = jax.jit(jax.numpy.copy), _filled(size, there)
        return lambda: copied(source)

    return {
        device_ceilings.COPY: on_device,
        device_ceilings.TO_DEVICE_PINNED: lambda: between(_filled(size, pinned), there),
        device_ceilings.TO_DEVICE_PAGEABLE: lambda: between(np.full(size, 1, np.uint8), there),
        device_ceilings.FROM_DEVICE_PINNED: lambda: between(_filled(size, there), pinned),
    }


def _filled(size: int, home: Any) -> Any:
    return jax.device_put(np.full(size, 1, np.uint8), home)
