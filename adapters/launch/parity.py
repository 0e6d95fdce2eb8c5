"""Does this launch compute what the float64 reference computes?

Some steps of a launch (see ``check``) run with the recipe's learning rate. Their losses and, at a few seeded entries of
every parameter, the total update are compared with those of the reference. Whole updates would be a hundred million
numbers; 64 entries per parameter reveal a wrong gate order, a bias trained twice, a shifted padding or a sum taken for
a mean, each of which changes whole tensors. The guest observes, the host judges.
"""

from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from ..families import ParityRecipe
from ..networks import Network
from ..protocol import Parity
from .batches import sampled_entries

#: What a precision's rounding does to a loss, and to updates without and with kinks in the network, relative; float32,
#: on every device, has the recipes' own tolerances. The unit round-off u is 2**-11 for TF32 and float16 and 2**-8 for
#: bfloat16: four of them for the loss, which is a mean over examples, and 64 for the updates of smooth networks. Where
#: there are ReLUs or maxima, u decides which share of them falls to the other side, and the update's error grows with
#: its root: 16 of it, but less than 1, which is the error of a parameter that stands still. The errors seen:
#: adapters/README.md.
ROUNDINGS = {"tf32": (2.0**-9, 2.0**-5, 0.4), "float16": (2.0**-9, 2.0**-5, 0.4), "bfloat16": (2.0**-6, 2.0**-2, 0.8)}

#: The smallest tolerances, of losses and of updates, that honest arithmetic of a lower precision needs.
Allowance = Tuple[float, float]
NO_ALLOWANCE = (0.0, 0.0)


def allowance(network: Network, precision: str) -> Allowance:
    """Return the error that a precision may cause in this network; none for one that the table does not list."""
    loss, smooth, kinked = ROUNDINGS.get(precision, (0.0, 0.0, 0.0))
    return loss, kinked if network.family.kinked() else smooth


class Observation(NamedTuple):
    """Losses and updates of a launch's parity steps."""

    losses: List[float]
    updates: Dict[str, np.ndarray]  # of each parameter's sampled entries, float64
    parameter_count: int = 0  # trainable scalars as the framework itself holds them


def entries_of(name: str, value: np.ndarray) -> np.ndarray:
    """Return a parameter's sampled entries, float64."""
    # Not by a flat array: of a transposed weight that would be a copy, seconds for fcn5.
    value = np.asarray(value)
    places = np.unravel_index(sampled_entries(name, value.size), value.shape)
    sampled: np.ndarray = value[places].astype(np.float64)
    return sampled


def sample_weights(weights: Dict[str, np.ndarray]) -> Dict[str, np.ndarray]:
    """Return the sampled entries of the starting weights, so that the weights themselves can be dropped."""
    return {name: entries_of(name, value) for name, value in weights.items()}


def observe(
    parameters: Iterable[Tuple[str, np.ndarray]], before: Dict[str, np.ndarray], losses: List[float]
) -> Observation:
    """Form the updates from the parameters after the parity steps and their sampled entries before."""
    updates = {}
    count = 0
    for name, value in parameters:
        count += int(np.asarray(value).size)
        updates[name] = entries_of(name, value) - before[name]
    return Observation(losses, updates, count)


def all_unchanged(parameters: Iterable[Tuple[str, np.ndarray]], earlier: Dict[str, np.ndarray]) -> bool:
    """Tell whether every sampled entry is unchanged; reads no parameter beyond the first that moved."""
    return not any((entries_of(name, value) != earlier[name]).any() for name, value in parameters)


def save(path: str, observation: Observation, earlier: Sequence[Observation] = ()) -> None:
    """Write an observation as a reference file, with the updates of earlier ones: after one step, two, and so on."""
    arrays: Dict[str, Any] = {}
    for steps, each in enumerate(earlier, 1):
        arrays.update(("update%d:%s" % (steps, name), each.updates[name]) for name in sorted(each.updates))
    arrays.update(("update:" + name, observation.updates[name]) for name in sorted(observation.updates))
    np.savez_compressed(path, losses=np.array(observation.losses), **arrays)


def steps_in(path: str) -> Tuple[int, ...]:
    """Return after how many steps a reference file has losses and updates, in ascending order."""
    with np.load(path, allow_pickle=False) as archive:
        most = len(archive["losses"])
        names = {name.partition(":")[0] for name in archive.files}
        return tuple(steps for steps in range(1, most) if "update%d" % steps in names) + (most,)


def load(path: str, steps: Optional[int] = None) -> Observation:
    """Read a reference file, as it is after so many steps; after all of them without a number."""
    with np.load(path, allow_pickle=False) as archive:
        losses = [float(loss) for loss in archive["losses"]]
        start = "update:" if steps in (None, len(losses)) else "update%d:" % steps
        updates = {name[len(start) :]: archive[name] for name in archive.files if name.startswith(start)}
    if not updates:
        raise ValueError("%s has nothing for %s steps" % (path, steps))
    return Observation(losses[:steps], updates)


def _update_error(updates: Dict[str, np.ndarray], expected: Dict[str, np.ndarray]) -> Tuple[float, str]:
    """Return the largest relative error of a parameter's update, and that parameter's name."""
    scale = max(float(np.abs(update).max()) for update in expected.values())
    worst, name_of_worst = 0.0, ""
    for name, update in expected.items():
        # A parameter whose sampled entries hardly move (rare embedding rows, dead ReLUs) is judged against the
        # largest update of the network, lest float32 noise be divided by almost nothing.
        floor = 1e-6 * scale * np.sqrt(update.size)
        error = float(np.linalg.norm(updates[name] - update) / max(float(np.linalg.norm(update)), floor))
        if np.isnan(error):
            return error, name
        if error > worst:
            worst, name_of_worst = error, name
    return worst, name_of_worst


def _wider(recipe: ParityRecipe, allowed: Allowance) -> Allowance:
    return max(recipe.loss_tolerance, allowed[0]), max(recipe.update_tolerance, allowed[1])


def judge(
    observation: Observation, reference: Observation, recipe: ParityRecipe, allowed: Allowance = NO_ALLOWANCE
) -> Parity:
    """Compare a launch's observation with the reference's, by the network's recipe and the precision's allowance."""
    if len(observation.losses) != len(reference.losses) or set(observation.updates) != set(reference.updates):
        raise ValueError("the reference was made for another recipe or another network: make it anew")
    losses, expected = np.array(observation.losses), np.array(reference.losses)
    # After one step a small network may have memorised a small mini-batch: its loss is close to zero then.
    scale = np.maximum(np.abs(expected), 0.1 * abs(expected[0]))
    loss_error = float(np.max(np.abs(losses - expected) / scale))  # unlike max(), keeps a NaN
    update_error, worst = _update_error(observation.updates, reference.updates)
    loss_tolerance, update_tolerance = _wider(recipe, allowed)
    problems = []
    if not loss_error <= loss_tolerance:
        problems.append("loss off by %.1e (tolerance %.0e)" % (loss_error, loss_tolerance))
    if not update_error <= update_tolerance:
        problems.append("update of %s off by %.1e (tolerance %.0e)" % (worst, update_error, update_tolerance))
    finite = bool(np.isfinite(loss_error) and np.isfinite(update_error))
    return Parity(
        verdict="disagrees" if problems else "agrees",
        reason="; ".join(problems),
        losses=[loss for loss in observation.losses if np.isfinite(loss)],
        loss_error=loss_error if finite else None,
        update_error=update_error if finite else None,
        worst_parameter=worst,
        loss_tolerance=loss_tolerance,
        update_tolerance=update_tolerance,
        seconds=0.0,
    )


def unchecked(network: Network, reason: str, allowed: Allowance = NO_ALLOWANCE) -> Parity:
    """Return the verdict of a launch that could not be compared, with the reason."""
    return Parity("unchecked", reason, [], None, None, "", *_wider(network.parity, allowed), 0.0)
