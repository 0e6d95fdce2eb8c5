"""Training on a text: one jitted step of RMSProp."""

from typing import Any, Callable, Dict, Iterable, Iterator, List

import jax
import jax.numpy as jnp

from ..launch.batches import Batch
from ..texts.mini_batches import Block, RmsProp
from .parallel import Differentiated


def update_step(differentiated: Differentiated, update: RmsProp) -> Callable[..., Any]:
    """Return the function of a step: (parameters, squares, rate, inputs, labels) to (parameters, squares, loss)."""

    def step(parameters: Any, squares: Any, rate: Any, inputs: Any, labels: Any) -> Any:
        loss, gradients = differentiated(parameters, inputs, labels)
        norm = jnp.sqrt(sum(jnp.vdot(each, each) for each in gradients.values()))
        scale = jnp.minimum(1.0, update.clip / norm)
        new, means = {}, {}
        for name, value in parameters.items():
            gradient = gradients[name] * scale
            means[name] = update.decay * squares[name] + (1.0 - update.decay) * gradient * gradient
            new[name] = value - rate * gradient / (jnp.sqrt(means[name]) + update.epsilon)
        return new, means, loss

    return step


def losses(
    differentiated: Differentiated,
    parameters: Dict[str, Any],
    place: Callable[[Batch], Any],
    blocks: Iterable[Block],
    update: RmsProp,
) -> Iterator[List[float]]:
    """Train from these parameters on mini-batches that ``place`` puts on the device; yield each block's losses."""
    step = jax.jit(update_step(differentiated, update), donate_argnums=(0, 1))
    squares = {name: jnp.zeros_like(value) for name, value in parameters.items()}
    for block in blocks:
        found = []
        for batch in block.batches:
            parameters, squares, loss = step(parameters, squares, block.rate, *place(batch))
            found.append(loss)
        yield [float(each) for each in jax.device_get(found)]
