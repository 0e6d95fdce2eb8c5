"""Real extra work in each step, to try out whether a slowdown is found.

``DLBENCH_EXTRA_PRODUCTS`` in a launch's environment, such as "18x128", adds so many of the framework's own matrix
products of this order to every step. It is work that competes for the same caches and threads as a slower kernel
would, which a sleep does not.
"""

import os
import re
from typing import Callable

from ..base import Adapter, Unsupported

VARIABLE = "DLBENCH_EXTRA_PRODUCTS"


def step_of(adapter: Adapter) -> Callable[[], None]:
    """Return the step to time: the adapter's own, with the extra products after it where any were asked for."""
    asked = os.environ.get(VARIABLE, "")
    if not asked:
        return adapter.step
    found = re.match(r"([0-9]{1,6})x([1-9][0-9]{0,4})\Z", asked)
    if found is None:
        raise Unsupported("%s=%s cannot be read; write COUNTxORDER, such as 18x128" % (VARIABLE, asked[:40]))
    count = int(found.group(1))
    multiply = adapter.multiply(int(found.group(2)))
    if multiply is None:
        raise Unsupported("%s: this framework offers no matrix product" % VARIABLE)
    product: Callable[[], object] = multiply
    step = adapter.step

    def heavier() -> None:
        step()
        for _ in range(count):
            product()

    return heavier
