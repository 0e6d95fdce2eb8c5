"""Sampling machines in JAX.

A step is one jitted function of the machine's arrays and the states of its chains.
"""

from typing import Any, Callable, Dict, Tuple

import jax
import jax.numpy as jnp
from jax import lax

from ..libraries.sampling import Arrays, Program, SamplingDriver


def _decided(family: Any, gaps: Any, numbers: Any) -> Tuple[Any, Any]:
    """Return the units' new states and their probabilities of 1."""
    probabilities = jax.nn.sigmoid(gaps / family.tau)
    return (numbers < probabilities).astype(jnp.float32), probabilities


def boltzmann(family: Any) -> Program:
    """Return a sweep in the family's order."""

    def one_by_one(fixed: Arrays, moving: Arrays) -> Tuple[Arrays, Any]:
        def turn(gaps: Any, given: Any) -> Tuple[Any, Any]:
            unit, weight, number, before = given
            after, probability = _decided(family, gaps[unit], number)
            return gaps + weight[:, None] * (after - before), (after, probability)

        units = jnp.arange(family.units), fixed["weight"], fixed["numbers"], moving["state"]
        gaps, (state, shown) = lax.scan(turn, moving["gaps"], units)
        return {"gaps": gaps, "state": state}, shown

    def at_once(fixed: Arrays, moving: Arrays) -> Tuple[Arrays, Any]:
        gaps = fixed["weight"] @ moving["state"] + fixed["bias"]
        state, shown = _decided(family, gaps, fixed["numbers"])
        return {"state": state}, shown

    def by_halves(fixed: Arrays, moving: Arrays) -> Tuple[Arrays, Any]:
        weight = fixed["weight"]
        bias = fixed["bias"]
        numbers = fixed["numbers"]
        half = family.halves[0]
        first, shown = _decided(
            family, weight @ moving["state"][half:] + bias[:half], numbers[:half]
        )
        second, shown_then = _decided(family, weight.T @ first + bias[half:], numbers[half:])
        return {"state": jnp.concatenate([first, second])}, jnp.concatenate([shown, shown_then])

    sweep = {"sequential": one_by_one, "synchronous": at_once, "bipartite": by_halves}[family.order]

    def step(fixed: Arrays, moving: Arrays) -> Tuple[Arrays, Any]:
        moved, shown = sweep(fixed, moving)
        mean = jnp.mean(shown, axis=1)
        return dict(moved, activity=moving["activity"] + mean), jnp.mean(mean)

    return step


def mcculloch_pitts(family: Any) -> Program:
    """Return the transitions of a step."""

    def step(fixed: Arrays, moving: Arrays) -> Tuple[Arrays, Any]:
        rows = jnp.arange(moving["signs"].shape[0])

        def transition(state: Any, given: Any) -> Tuple[Any, None]:
            signs, fields, clock = state
            choice, wait = given
            edges = jnp.cumsum(jnp.exp(signs * fields / (2.0 * family.tau)), axis=1)
            total = edges[:, -1]
            # As many edges as are not above are those before the chosen unit's.
            chosen = jnp.sum(edges <= (choice * total)[:, None], axis=1)
            change = signs[rows, chosen]
            fields = fields + change[:, None] * fixed["weight"][chosen]
            return (signs.at[rows, chosen].set(-change), fields, clock + wait / total), None

        start = moving["signs"], moving["fields"], moving["clock"]
        (signs, fields, clock), _ = lax.scan(transition, start, (fixed["choices"], fixed["waits"]))
        activity = moving["activity"] + jnp.mean(0.5 - 0.5 * signs, axis=0)
        moved = {"signs": signs, "fields": fields, "clock": clock, "activity": activity}
        return moved, jnp.mean(clock)

    return step


PROGRAMS: Dict[str, Callable[[Any], Program]] = {
    "boltzmann": boltzmann,
    "mcculloch_pitts": mcculloch_pitts,
}


class JaxSampler(SamplingDriver):
    """A sampler; ``donated``: the buffers of moving arrays are given to the new ones."""

    answers = (*SamplingDriver.answers, "synchronize")

    def __init__(self, family: Any, put: Callable[[Any], Any], donated: bool) -> None:
        program = jax.jit(PROGRAMS[family.name](family), donate_argnums=(1,) if donated else ())
        super().__init__(family, put, program)

    def synchronize(self) -> None:
        jax.block_until_ready((self.moving, self.loss))
