"""Does this launch compute what the float64 reference computes?

The first steps of a launch, which warm it up anyway, run with the recipe's learning rate. Their losses and, at a few
seeded entries of every parameter, the total update are compared with those of the reference. Whole updates would be
a hundred million numbers; 64 entries per parameter find a wrong gate order, a bias trained twice, a shifted padding
or a sum taken for a mean, each of which changes whole tensors.
"""

import time
from typing import Dict, Iterable, List, NamedTuple, Tuple

import numpy as np

from .batches import sampled_entries
from .networks import Network, ParityRecipe
from .protocol import Parity


class Observation(NamedTuple):
    """What a launch's parity steps showed: the losses, and the update of each parameter's sampled entries."""

    losses: List[float]
    updates: Dict[str, np.ndarray]  # float64, at most 64 entries each
    parameter_count: int = 0  # trainable scalars as the framework itself holds them


def sample_weights(weights):
    # type: (Dict[str, np.ndarray]) -> Dict[str, np.ndarray]
    """Return the sampled entries of the starting weights, so that the weights themselves can be dropped."""
    return {
        name: value.reshape(-1)[sampled_entries(name, value.size)].astype(np.float64) for name, value in weights.items()
    }


def observe(parameters, before, losses):
    # type: (Iterable[Tuple[str, np.ndarray]], Dict[str, np.ndarray], List[float]) -> Observation
    """Form the updates from the parameters after the parity steps and their sampled entries before.

    ``parameters`` gives all of ``before`` (see ``contract.learnt``).
    """
    updates = {}
    count = 0
    for name, value in parameters:
        flat = np.asarray(value).reshape(-1)
        count += int(flat.size)
        updates[name] = flat[sampled_entries(name, flat.size)].astype(np.float64) - before[name]
    return Observation(losses, updates, count)


def save(path, observation):
    # type: (str, Observation) -> None
    """Write an observation as a reference file."""
    names = sorted(observation.updates)
    arrays = {"update:" + name: observation.updates[name] for name in names}
    np.savez_compressed(path, losses=np.array(observation.losses), **arrays)


def load(path):
    # type: (str) -> Observation
    """Read a reference file."""
    with np.load(path, allow_pickle=False) as archive:
        updates = {name[7:]: archive[name] for name in archive.files if name.startswith("update:")}
        return Observation([float(loss) for loss in archive["losses"]], updates)


def _update_error(found, expected):
    # type: (Dict[str, np.ndarray], Dict[str, np.ndarray]) -> Tuple[float, str]
    """Return the largest relative error of a parameter's update, and that parameter's name."""
    scale = max(float(np.abs(update).max()) for update in expected.values())
    worst, name_of_worst = 0.0, ""
    for name, update in expected.items():
        # A parameter whose sampled entries hardly move (rare embedding rows, dead ReLUs) is judged against the
        # largest update of the network, lest float32 noise be divided by nothing.
        floor = 1e-6 * scale * np.sqrt(update.size)
        error = float(np.linalg.norm(found[name] - update) / max(float(np.linalg.norm(update)), floor))
        if np.isnan(error):
            return error, name
        if error > worst:
            worst, name_of_worst = error, name
    return worst, name_of_worst


def judge(observation, reference, recipe, seconds=0.0):
    # type: (Observation, Observation, ParityRecipe, float) -> Parity
    """Compare a launch's observation with the reference's, by the network's recipe."""
    if len(observation.losses) != len(reference.losses) or set(observation.updates) != set(reference.updates):
        raise ValueError("the reference was made for another recipe or another network: make it anew")
    losses, expected = np.array(observation.losses), np.array(reference.losses)
    loss_error = float(np.max(np.abs(losses - expected) / np.abs(expected)))  # unlike max(), keeps a NaN
    update_error, worst = _update_error(observation.updates, reference.updates)
    problems = []
    if not loss_error <= recipe.loss_tolerance:
        problems.append("loss off by %.1e (tolerance %.0e)" % (loss_error, recipe.loss_tolerance))
    if not update_error <= recipe.update_tolerance:
        problems.append("update of %s off by %.1e (tolerance %.0e)" % (worst, update_error, recipe.update_tolerance))
    finite = bool(np.isfinite(loss_error) and np.isfinite(update_error))
    return Parity(
        verdict="disagrees" if problems else "agrees",
        reason="; ".join(problems),
        losses=[loss for loss in observation.losses if np.isfinite(loss)],
        loss_error=loss_error if finite else None,
        update_error=update_error if finite else None,
        worst_parameter=worst,
        loss_tolerance=recipe.loss_tolerance,
        update_tolerance=recipe.update_tolerance,
        seconds=seconds,
    )


def unchecked(network, reason):
    # type: (Network, str) -> Parity
    """Return the verdict of a launch that could not be compared, with the reason."""
    recipe = network.parity
    return Parity("unchecked", reason, [], None, None, "", recipe.loss_tolerance, recipe.update_tolerance, 0.0)


class Stopwatch:
    """Sums the seconds spent inside its ``with`` blocks."""

    def __init__(self):
        # type: () -> None
        self.seconds = 0.0

    def __enter__(self):
        # type: () -> Stopwatch
        self._start = time.perf_counter()
        return self

    def __exit__(self, *exception):
        # type: (object) -> None
        self.seconds += time.perf_counter() - self._start
