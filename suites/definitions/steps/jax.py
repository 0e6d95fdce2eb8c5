"""A training step for `dlbench run threads --step FILE`, in JAX: replace the network by your own.

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

import jax
import jax.numpy as jnp

INPUTS, HIDDEN, OUTPUTS, RATE = 1024, 2048, 512, 1e-3
state = {}


def predict(weights, inputs):
    """Return the outputs of the network."""
    first, second = weights
    return jax.nn.relu(inputs @ first) @ second


@jax.jit
def update(weights, inputs, targets):
    """Return the weights after one step, and the loss before it."""

    def loss_of(weights):
        return jnp.mean((predict(weights, inputs) - targets) ** 2)

    loss, gradients = jax.value_and_grad(loss_of)(weights)
    return jax.tree_util.tree_map(
        lambda weight, gradient: weight - RATE * gradient, weights, gradients
    ), loss


def prepare(cell):
    """Build what is trained; return one training step, and a function that returns the loss of the
    last one.

    ``cell`` has ``threads``, ``batch_size``, ``device``, ``precision`` and the other axes.
    """
    keys = jax.random.split(jax.random.PRNGKey(0), 4)
    first = jax.random.normal(keys[0], (INPUTS, HIDDEN)) / INPUTS**0.5
    second = jax.random.normal(keys[1], (HIDDEN, OUTPUTS)) / HIDDEN**0.5
    inputs = jax.random.normal(keys[2], (cell.batch_size, INPUTS))
    targets = jax.random.normal(keys[3], (cell.batch_size, OUTPUTS))
    state["weights"] = [first, second]

    def step():
        """Do one update. dlbench times this call and `synchronize`, and nothing else."""
        state["weights"], state["loss"] = update(state["weights"], inputs, targets)

    return step, lambda: float(state["loss"])


def synchronize():
    """Wait until the last step is over: its call returns earlier."""
    jax.block_until_ready(state)
