"""The training step as a function for ``tf.function``: loss, gradients, and the update of plain SGD."""

from typing import Any, Callable

import tensorflow as tf

from .networks import Model


def training_step(model: Model, rate: Any) -> Callable[[Any, Any], Any]:
    """Return the function of one training step: loss of the mini-batch, gradients, SGD update."""

    def step(inputs: Any, labels: Any) -> Any:
        variables = model.variables.all()
        with tf.GradientTape() as tape:
            loss = model.loss(inputs, labels)
        for variable, gradient in zip(variables, clipped(model, tape.gradient(loss, variables))):
            update(variable, gradient, rate)
        return loss

    return step


def clipped(model: Model, gradients: Any) -> Any:
    """Return the gradients, scaled down together where their norm is beyond what the model allows."""
    return tf.clip_by_global_norm(gradients, model.clip)[0] if model.clip else gradients


def update(variable: Any, gradient: Any, rate: Any) -> None:
    """Subtract ``rate * gradient`` in place, for the rows of an embedding only where tokens occurred."""
    if isinstance(gradient, tf.IndexedSlices):
        variable.scatter_sub(tf.IndexedSlices(rate * gradient.values, gradient.indices))
    else:
        tf.raw_ops.ResourceApplyGradientDescent(var=variable.handle, alpha=rate, delta=gradient)
