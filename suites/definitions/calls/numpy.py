"""A call of a trained network for `dlbench run threads --task inference --step FILE`, in NumPy: put
your own in.

`dlbench try FILE --task inference` runs it twice and shows what it prints; `run` drops its output.

- Each launch is a fresh process: it imports this file, calls prepare(cell) once, and then what that
  returned, again and again.
- A call returns its outputs: an array, or a list or dictionary of them. Those of the first calls
  must be the same in every launch, so load trained weights, or seed what is random.
- synchronize(), if the file has it, is called before and after every timed call, but never before
  the first.
- There are no arguments and no relative imports; modules beside this file can be imported.
"""

import numpy as np

INPUTS, HIDDEN, OUTPUTS = 1024, 2048, 512


def prepare(cell):
    """Build the network; return a call that answers one mini-batch with its outputs.

    ``cell`` has ``threads``, ``batch_size``, ``device``, ``precision`` and the other axes.
    """
    random = np.random.RandomState(0)
    first = (random.standard_normal((INPUTS, HIDDEN)) / np.sqrt(INPUTS)).astype(np.float32)
    second = (random.standard_normal((HIDDEN, OUTPUTS)) / np.sqrt(HIDDEN)).astype(np.float32)
    inputs = random.standard_normal((cell.batch_size, INPUTS)).astype(np.float32)

    def call():
        """Answer once. dlbench times this call, and nothing else."""
        return np.maximum(inputs @ first, 0) @ second

    return call
