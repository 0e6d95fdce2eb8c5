"""Sampling machines in TensorFlow.

A step is one graph of the machine's tensors and the states of its chains.
"""

from typing import Any, Callable, Dict, Tuple

import tensorflow as tf

from ..libraries.sampling import Arrays, Program, SamplingDriver


def _decided(family: Any, gaps: Any, numbers: Any) -> Tuple[Any, Any]:
    """Return the units' new states and their probabilities of 1."""
    probabilities = tf.sigmoid(gaps / family.tau)
    return tf.cast(numbers < probabilities, tf.float32), probabilities


def boltzmann(family: Any) -> Program:
    """Return a sweep in the family's order."""

    def one_by_one(fixed: Arrays, moving: Arrays) -> Tuple[Arrays, Any]:
        chains = moving["state"].shape[1:]
        # A row for each unit: its states after the sweep, and its probabilities.
        rows = [tf.TensorArray(tf.float32, family.units, element_shape=chains) for _ in range(2)]

        def turn(unit: Any, gaps: Any, states: Any, shown: Any) -> Any:
            gap = tf.gather(gaps, unit)
            after, probability = _decided(family, gap, tf.gather(fixed["numbers"], unit))
            change = after - tf.gather(moving["state"], unit)
            gaps += tf.gather(fixed["weight"], unit)[:, tf.newaxis] * change
            return unit + 1, gaps, states.write(unit, after), shown.write(unit, probability)

        loop = tf.while_loop(
            lambda unit, *_: unit < family.units,
            turn,
            (0, moving["gaps"], *rows),
            maximum_iterations=family.units,
        )
        return {"gaps": loop[1], "state": loop[2].stack()}, loop[3].stack()

    def at_once(fixed: Arrays, moving: Arrays) -> Tuple[Arrays, Any]:
        gaps = tf.matmul(fixed["weight"], moving["state"]) + fixed["bias"]
        state, shown = _decided(family, gaps, fixed["numbers"])
        return {"state": state}, shown

    def by_halves(fixed: Arrays, moving: Arrays) -> Tuple[Arrays, Any]:
        weight = fixed["weight"]
        bias = fixed["bias"]
        numbers = fixed["numbers"]
        half = family.halves[0]
        gaps = tf.matmul(weight, moving["state"][half:]) + bias[:half]
        first, shown = _decided(family, gaps, numbers[:half])
        gaps = tf.matmul(weight, first, transpose_a=True) + bias[half:]
        second, shown_then = _decided(family, gaps, numbers[half:])
        return {"state": tf.concat([first, second], 0)}, tf.concat([shown, shown_then], 0)

    sweep = {"sequential": one_by_one, "synchronous": at_once, "bipartite": by_halves}[family.order]

    def step(fixed: Arrays, moving: Arrays) -> Tuple[Arrays, Any]:
        moved, shown = sweep(fixed, moving)
        mean = tf.reduce_mean(shown, axis=1)
        return dict(moved, activity=moving["activity"] + mean), tf.reduce_mean(mean)

    return step


def mcculloch_pitts(family: Any) -> Program:
    """Return the transitions of a step."""

    def step(fixed: Arrays, moving: Arrays) -> Tuple[Arrays, Any]:
        def transition(number: Any, signs: Any, fields: Any, clock: Any) -> Any:
            edges = tf.cumsum(tf.exp(signs * fields / (2.0 * family.tau)), axis=1)
            total = edges[:, -1]
            level = tf.gather(fixed["choices"], number) * total
            # As many edges as are not above are those before the chosen unit's.
            chosen = tf.reduce_sum(tf.cast(edges <= level[:, tf.newaxis], tf.int32), axis=1)
            change = tf.gather(signs, chosen, batch_dims=1)
            fields += change[:, tf.newaxis] * tf.gather(fixed["weight"], chosen)
            signs *= 1.0 - 2.0 * tf.one_hot(chosen, family.units)
            return number + 1, signs, fields, clock + tf.gather(fixed["waits"], number) / total

        start = (0, moving["signs"], moving["fields"], moving["clock"])
        count = family.transitions
        loop = tf.while_loop(
            lambda number, *_: number < count, transition, start, maximum_iterations=count
        )
        _, signs, fields, clock = loop
        activity = moving["activity"] + tf.reduce_mean(0.5 - 0.5 * signs, axis=0)
        moved = {"signs": signs, "fields": fields, "clock": clock, "activity": activity}
        return moved, tf.reduce_mean(clock)

    return step


PROGRAMS: Dict[str, Callable[[Any], Program]] = {
    "boltzmann": boltzmann,
    "mcculloch_pitts": mcculloch_pitts,
}


def sampler(family: Any, put: Callable[[Any], Any], compiled: bool) -> SamplingDriver:
    """Return the machine; ``compiled``: by XLA."""
    program = tf.function(PROGRAMS[family.name](family), jit_compile=compiled, autograph=False)
    return SamplingDriver(family, put, program)
