"""Dense products with weights in canonical layout, and biases that keep their own type."""

from typing import Any, Dict

from jax import lax


def product(values: Any, weight: Any) -> Any:
    """Return ``values @ weight.T``: a dense product with a weight in canonical layout, over any leading axes."""
    return lax.dot_general(values, weight, (((values.ndim - 1,), (1,)), ((), ())))


def plus(values: Any, bias: Any) -> Any:
    """Add a bias in the bias's type, and return the sum in the values' type."""
    return values + bias if values.dtype == bias.dtype else (values.astype(bias.dtype) + bias).astype(values.dtype)


def dense(parameters: Dict[str, Any], name: str, values: Any) -> Any:
    """Return the dense layer of this name."""
    return plus(product(values, parameters[name + ".weight"]), parameters[name + ".bias"])
