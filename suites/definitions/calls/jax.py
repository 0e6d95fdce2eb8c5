"""A call of a trained network for `dlbench run threads --task inference --step FILE`, in JAX: put
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

import jax

INPUTS, HIDDEN, OUTPUTS = 1024, 2048, 512
last = {}


@jax.jit
def answer(weights, inputs):
    """Return the outputs of the network."""
    first, second = weights
    return jax.nn.relu(inputs @ first) @ second


def prepare(cell):
    """Build the network; return a call that answers one mini-batch with its outputs.

    ``cell`` has ``threads``, ``batch_size``, ``device``, ``precision`` and the other axes.
    """
    keys = jax.random.split(jax.random.PRNGKey(0), 3)
    first = jax.random.normal(keys[0], (INPUTS, HIDDEN)) / INPUTS**0.5
    second = jax.random.normal(keys[1], (HIDDEN, OUTPUTS)) / HIDDEN**0.5
    inputs = jax.random.normal(keys[2], (cell.batch_size, INPUTS))

    def call():
        """Answer once. dlbench times this call and `synchronize`, and nothing else."""
        last["outputs"] = answer([first, second], inputs)
        return last["outputs"]

    return call


def synchronize():
    """Wait until the last call is over: it returns earlier."""
    jax.block_until_ready(last)
