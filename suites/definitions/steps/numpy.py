"""A training step for `dlbench run threads --step FILE`, in NumPy: replace the network by your own.

`dlbench try FILE` runs it twice and shows what it prints; `run` drops its output.

- Each launch is a fresh process: it imports this file, calls prepare(cell) once, and then the step,
  at least three times and as often as a suite asks (30 to 100 times in most).
- The losses of the first two or three steps must be the same in every launch, so seed whatever is
  random. Without a function for the loss nothing is checked.
- synchronize(), if the file has it, is called before and after every timed step, but never before
  the first.
- The garbage collector is off while steps are timed. There are no arguments and no relative
  imports; modules beside this file can be imported.
- HELPERS = 2, at the top level, says that two threads or processes load data beside those that
  compute.
"""

import numpy as np

INPUTS, HIDDEN, OUTPUTS, RATE = 1024, 2048, 512, 1e-3


def prepare(cell):
    """Build what is trained; return one training step, and a function that returns the loss of the
    last one.

    ``cell`` has ``threads``, ``batch_size``, ``device``, ``precision`` and the other axes.
    """
    random = np.random.RandomState(0)
    first = (random.standard_normal((INPUTS, HIDDEN)) / np.sqrt(INPUTS)).astype(np.float32)
    second = (random.standard_normal((HIDDEN, OUTPUTS)) / np.sqrt(HIDDEN)).astype(np.float32)
    inputs = random.standard_normal((cell.batch_size, INPUTS)).astype(np.float32)
    targets = random.standard_normal((cell.batch_size, OUTPUTS)).astype(np.float32)
    last = {"loss": float("nan")}

    def step():
        """Do one update. dlbench times this call, and nothing else."""
        hidden = np.maximum(inputs @ first, 0)
        errors = hidden @ second - targets
        last["loss"] = float(np.mean(errors * errors))
        gradient = errors * np.float32(2.0 / errors.size)
        through = (gradient @ second.T) * (hidden > 0)
        second[...] -= np.float32(RATE) * (hidden.T @ gradient)
        first[...] -= np.float32(RATE) * (inputs.T @ through)

    return step, lambda: last["loss"]
