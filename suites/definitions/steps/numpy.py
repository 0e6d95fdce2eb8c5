"""A training step for `dlbench run threads --step FILE`, in NumPy: replace the network by your own."""

import numpy as np

INPUTS, HIDDEN, OUTPUTS, RATE = 1024, 2048, 512, 1e-3


def prepare(cell):
    """Build what is trained; return one training step, and what tells the loss of the last one.

    ``cell`` has ``threads``, ``batch_size``, ``device`` and the other axes. Seed whatever is random: the losses of the
    first steps must be the same in every launch.
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
