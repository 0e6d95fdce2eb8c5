"""The parity check of a launch: does it compute what the float64 reference computes?

After the timed steps, the same step runs a few more times with the recipe's learning rate, from
weights and on data that the timed steps never saw (``Adapter.reset``); only then does the host say
how often. The losses and, at a few seeded entries of every parameter, the total update are compared
with those of the reference. Whole updates would be a hundred million numbers; 64 entries per
parameter reveal a wrong gate order, a bias trained twice, a shifted padding or a sum instead of a
mean, since each of these changes whole tensors. The guest observes, the host judges.
"""

import json
import math
import os
from typing import (
    Any,
    Callable,
    Dict,
    Iterable,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
)

import numpy as np

from .. import networks
from ..base import Adapter
from ..families import ParityRecipe
from ..networks import Network
from ..protocol import (
    BEGIN,
    END,
    FED,
    HOST_LINE,
    READ,
    RESET,
    STEPS,
    TURN,
    Cell,
    Launch,
    Parity,
    ParitySample,
)
from . import batches, contract
from .batches import Batch, sampled_entries

#: The relative errors that a precision's rounding causes: of a loss, and of updates without and
#: with kinks in the network. Float32, on every device, has the recipes' own tolerances. The unit
#: round-off u is 2**-11 for TF32 and float16 and 2**-8 for bfloat16: four of them for the loss,
#: which is a mean over examples, and 64 for the updates of smooth networks. Where there are ReLUs
#: or maxima, u decides which share of them falls to the other side, and the update's error grows
#: with its root: 16 of it, but less than 1, which is the error of a parameter that stands still.
#: The errors seen: adapters/docs/explanation/tolerances.md.
ROUNDINGS = {
    "tf32": (2.0**-9, 2.0**-5, 0.4),
    "float16": (2.0**-9, 2.0**-5, 0.4),
    "bfloat16": (2.0**-6, 2.0**-2, 0.8),
}

#: The smallest tolerances, of losses and of updates, that honest arithmetic of a lower precision
#: needs.
Allowance = Tuple[float, float]
NO_ALLOWANCE = (0.0, 0.0)


def allowance(network: Network, precision: str) -> Allowance:
    """Return the error that a precision may cause in this network.

    It is zero for a precision that the table does not list.
    """
    loss, smooth, kinked = ROUNDINGS.get(precision, (0.0, 0.0, 0.0))
    update = kinked if network.family.kinked() else smooth
    return loss, update


#: A parameter that does not move must fail, however many local steps a check has.
_MOST_UPDATE_ERROR = 0.5


def recipe_of(network: Network, cell: Cell) -> ParityRecipe:
    """Return the recipe of a cell's check, with more steps where some are local.

    Otherwise it is the network's own. With local steps it has that many more. It goes beyond the
    first exchange, at a rate at which the local steps together move as far as one step of the
    network's recipe. Their rounding errors add up like those of independent steps, and so do
    tolerances.
    """
    recipe = network.parity
    local = cell.local_steps
    if not local:
        return recipe
    steps = local + recipe.steps
    factor = math.sqrt(steps)
    update_tolerance = min(recipe.update_tolerance * factor, _MOST_UPDATE_ERROR)
    return ParityRecipe(
        steps,
        recipe.learning_rate / local,
        recipe.loss_tolerance * factor,
        max(recipe.update_tolerance, update_tolerance),
        recipe.why,
    )


#: Largest relative error of an example's outputs at a precision that is lower than float32: eight
#: units of rounding.
OUTPUT_ROUNDINGS = {"tf32": 2.0**-8, "float16": 2.0**-8, "bfloat16": 2.0**-5}
#: Outputs of an example that the check reads.
SAMPLED_OUTPUTS = 32


def output_tolerance(network: Network, precision: str) -> float:
    """Return the largest relative error of an example's outputs that a precision may cause."""
    return max(network.family.output_tolerance, OUTPUT_ROUNDINGS.get(precision, 0.0))


def sample_outputs(outputs: np.ndarray) -> np.ndarray:
    """Return the sampled outputs of each example, float64 (batch, sampled).

    ``outputs`` are (batch, rows, outputs).
    """
    flat = outputs.reshape(len(outputs), -1)
    places = sampled_entries("outputs", flat.shape[1], SAMPLED_OUTPUTS)
    sampled: np.ndarray = flat[:, places].astype(np.float64)
    return sampled


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
    """Return the sampled entries of the starting weights, which can then be dropped."""
    return {name: entries_of(name, value) for name, value in weights.items()}


def observe(
    parameters: Iterable[Tuple[str, np.ndarray]], before: Dict[str, np.ndarray], losses: List[float]
) -> Observation:
    """Form the updates from the parameters after the parity steps.

    ``before`` are their sampled entries before these steps.
    """
    updates = {}
    count = 0
    for name, value in parameters:
        count += int(np.asarray(value).size)
        updates[name] = entries_of(name, value) - before[name]
    return Observation(losses, updates, count)


def all_unchanged(
    parameters: Iterable[Tuple[str, np.ndarray]], earlier: Dict[str, np.ndarray]
) -> bool:
    """Return whether every sampled entry is unchanged.

    It reads no parameter after the first that moved.
    """
    return not any((entries_of(name, value) != earlier[name]).any() for name, value in parameters)


def save(path: str, observation: Observation, earlier: Sequence[Observation] = ()) -> None:
    """Write an observation as a reference file, with the updates of earlier ones.

    Each of these has the losses until then.
    """
    arrays: Dict[str, Any] = {}
    for partial in earlier:
        steps = len(partial.losses)
        for name in sorted(partial.updates):
            arrays["update%d:%s" % (steps, name)] = partial.updates[name]
    for name in sorted(observation.updates):
        arrays["update:" + name] = observation.updates[name]
    np.savez_compressed(path, losses=np.array(observation.losses), **arrays)


def steps_in(path: str) -> Tuple[int, ...]:
    """Return after how many steps a reference file has losses and updates, in ascending order."""
    with np.load(path, allow_pickle=False) as archive:
        if "losses" not in archive.files:
            return tuple(range(1, len(archive.files) + 1))
        most = len(archive["losses"])
        names = {name.partition(":")[0] for name in archive.files}
        steps = [step for step in range(1, most) if "update%d" % step in names]
        return (*steps, most)


def load(path: str, steps: Optional[int] = None) -> Observation:
    """Read a reference file, as it is after this many steps; after all of them without a number."""
    with np.load(path, allow_pickle=False) as archive:
        losses = [float(loss) for loss in archive["losses"]]
        start = "update:" if steps in (None, len(losses)) else "update%d:" % steps
        updates = {}
        for name in archive.files:
            if name.startswith(start):
                updates[name[len(start) :]] = archive[name]
    if not updates:
        raise ValueError("%s has nothing for %s steps" % (path, steps))
    return Observation(losses[:steps], updates)


def load_outputs(path: str, steps: int) -> np.ndarray:
    """Read the sampled outputs of the mini-batch of this step from a reference of inference."""
    with np.load(path, allow_pickle=False) as archive:
        outputs: np.ndarray = archive["outputs%d" % steps]
    return outputs


def _update_error(
    updates: Dict[str, np.ndarray], expected: Dict[str, np.ndarray]
) -> Tuple[float, str]:
    """Return the largest relative error of a parameter's update, and that parameter's name."""
    scale = max(float(np.abs(update).max()) for update in expected.values())
    worst = 0.0
    name_of_worst = ""
    for name, update in expected.items():
        # A parameter whose sampled entries hardly move (rare embedding rows, dead ReLUs) is judged
        # against the largest update of the network, so as not to divide float32 noise by almost
        # nothing.
        floor = 1e-6 * scale * np.sqrt(update.size)
        norm = max(float(np.linalg.norm(update)), floor)
        error = float(np.linalg.norm(updates[name] - update) / norm)
        if np.isnan(error):
            return error, name
        if error > worst:
            worst = error
            name_of_worst = name
    return worst, name_of_worst


def _tolerances(recipe: ParityRecipe, allowed: Allowance) -> Allowance:
    """Return the tolerances of losses and updates: the wider of the recipe's and the allowance."""
    return max(recipe.loss_tolerance, allowed[0]), max(recipe.update_tolerance, allowed[1])


def judge(
    observation: Observation,
    reference: Observation,
    recipe: ParityRecipe,
    allowed: Allowance = NO_ALLOWANCE,
) -> Parity:
    """Compare a launch's observation with the reference's.

    The network's recipe and the precision's allowance give the tolerances.
    """
    same_steps = len(observation.losses) == len(reference.losses)
    if not same_steps or set(observation.updates) != set(reference.updates):
        raise ValueError(
            "the reference was made for another recipe or another network: generate it again"
        )
    losses = np.array(observation.losses)
    expected = np.array(reference.losses)
    # After one step a small network may have memorised a small mini-batch: its loss is close to
    # zero then.
    scale = np.maximum(np.abs(expected), 0.1 * abs(expected[0]))
    loss_error = float(np.max(np.abs(losses - expected) / scale))  # unlike max(), keeps a NaN
    update_error, worst = _update_error(observation.updates, reference.updates)
    loss_tolerance, update_tolerance = _tolerances(recipe, allowed)
    problems = []
    if not loss_error <= loss_tolerance:
        problems.append("loss off by %.1e (tolerance %.0e)" % (loss_error, loss_tolerance))
    if not update_error <= update_tolerance:
        problems.append(
            "update of %s off by %.1e (tolerance %.0e)" % (worst, update_error, update_tolerance)
        )
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


def judge_outputs(outputs: np.ndarray, expected: np.ndarray, tolerance: float) -> Parity:
    """Compare sampled outputs with those expected, both (batch, sampled).

    Each example is judged by itself, so that none may be left out. One whose outputs are small by
    chance is judged against the usual size of an example's outputs.
    """
    sizes = np.linalg.norm(expected, axis=1)
    errors = np.linalg.norm(outputs - expected, axis=1) / np.maximum(sizes, 0.3 * np.median(sizes))
    error = float(np.max(errors))  # unlike max(), keeps a NaN
    finite = bool(np.isfinite(error))
    agrees = bool(error <= tolerance)
    reason = "" if agrees else "outputs off by %.1e (tolerance %.0e)" % (error, tolerance)
    if not finite:
        reason = "the outputs of the parity check are not finite"
    return Parity(
        verdict="agrees" if agrees else "disagrees",
        reason=reason,
        losses=[],
        loss_error=None,
        update_error=None,
        worst_parameter="",
        loss_tolerance=0.0,
        update_tolerance=0.0,
        seconds=0.0,
        output_error=error if finite else None,
        output_tolerance=tolerance,
    )


def unchecked(network: Network, reason: str, allowed: Allowance = NO_ALLOWANCE) -> Parity:
    """Return the verdict of a launch that could not be compared, with the reason."""
    loss_tolerance, update_tolerance = _tolerances(network.parity, allowed)
    return Parity(
        verdict="unchecked",
        reason=reason,
        losses=[],
        loss_error=None,
        update_error=None,
        worst_parameter="",
        loss_tolerance=loss_tolerance,
        update_tolerance=update_tolerance,
        seconds=0.0,
    )


_LONGEST = 4096


class CheckRequest(NamedTuple):
    """The parity check that the host asks for."""

    steps: int  # of each round, from the weights that ``reset`` put in place
    rounds: int


class HostLine:
    """The line to the host; without one nothing is sent and no check is asked for.

    At each mark the guest sends a word and waits for the host's line: meanwhile the host reads its
    own clock and the CPU time of all processes of the launch. After the timed samples its line says
    which parity check to run; the guest cannot know that earlier.
    """

    def __init__(self) -> None:
        descriptor = os.environ.pop(HOST_LINE, "")
        self._line = int(descriptor) if descriptor.isdigit() else None
        if self._line is not None:
            os.set_inheritable(self._line, False)

    def mark(self, word: str) -> Dict[str, Any]:
        """Send a mark to the host, and return its answer: empty without a host."""
        if self._line is None:
            return {}
        try:
            os.write(self._line, word.encode("ascii") + b"\n")
            line = b""
            while not line.endswith(b"\n") and len(line) < _LONGEST:
                more = os.read(self._line, _LONGEST)
                if not more:
                    break
                line += more
        except OSError:
            self._line = None  # the host is gone, and this launch with it
            return {}
        answer = json.loads(line.decode("ascii") or "{}")
        return answer if isinstance(answer, dict) else {}

    def first_turn(self, nanoseconds: int) -> Tuple[int, bool]:
        """Send about how long a sample takes, and wait for the first turn.

        Return how many samples it is to have, and whether each turn is to begin with one that does
        not count.
        """
        answer = self.mark("%s %d" % (BEGIN, nanoseconds))
        return int(answer.get("samples", 0)), answer.get("lead_in") is True

    def next_turn(self, samples: int) -> int:
        """Send that a turn ended with this many samples, and wait for the next one.

        Return how many samples it is to have, or 0 if no turn follows.
        """
        return int(self.mark("%s %d" % (TURN, samples)).get("samples", 0))

    def end(self, steps: int) -> Optional[CheckRequest]:
        """Send that this many steps were timed, and return the check that is asked for."""
        return _request(self.mark("%s %d" % (END, steps)))

    def read(self) -> Optional[CheckRequest]:
        """Send that the parameters were read; return a further check if the host wants one."""
        return _request(self.mark(READ))


def _request(answer: Dict[str, Any]) -> Optional[CheckRequest]:
    if "steps" not in answer:
        return None
    return CheckRequest(int(answer["steps"]), int(answer["rounds"]))


class Weights(Mapping[str, np.ndarray]):
    """The check's weights, each made on lookup.

    All at once they would take as much memory as the framework's.
    """

    def __init__(self, network: Network, folder: Optional[str] = None) -> None:
        self._parameters = {parameter.name: parameter for parameter in network.family.parameters()}
        self._network = network
        self._folder = folder
        self.entries: Dict[str, np.ndarray] = {}  # the sampled ones of weights looked up so far

    def __getitem__(self, name: str) -> np.ndarray:
        value = batches.weight(self._network, self._parameters[name], folder=self._folder)
        self.entries[name] = entries_of(name, value)
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(self._parameters)

    def __len__(self) -> int:
        return len(self._parameters)


def run_check(
    adapter: Adapter,
    step: Callable[[], None],
    launch: Launch,
    host: HostLine,
    request: CheckRequest,
) -> ParitySample:
    """Run the checks of the timed ``step`` that the host asks for; return the last sample."""
    network = networks.from_data(launch.network or {})
    weights = Weights(network, launch.weights)
    batch = batches.launch_batch(network, launch)
    adapter.set_learning_rate(recipe_of(network, launch.cell).learning_rate)
    losses: List[float] = []
    further: Optional[CheckRequest] = request
    while further is not None:
        for _ in range(further.rounds):
            adapter.reset(weights, batch)
            adapter.synchronize()
            host.mark(RESET)
            losses = []
            for _ in range(further.steps):
                step()
                losses.append(contract.loss(adapter))
            adapter.synchronize()
            host.mark(STEPS)
        parameters = contract.current_parameters(adapter, network)
        observation = observe(parameters, weights.entries, losses)
        further = host.read()
    updates = {name: _finite(update) for name, update in observation.updates.items()}
    return ParitySample(_finite(losses), updates, observation.parameter_count)


def run_output_check(
    adapter: Adapter,
    step: Callable[[], None],
    launch: Launch,
    host: HostLine,
    request: CheckRequest,
) -> ParitySample:
    """Run the checks of inference that the host asks for.

    The mini-batch was unknown until then.
    """
    network = networks.from_data(launch.network or {})
    examples = batches.checked_examples(network)
    size = launch.cell.known_batch_size
    further: Optional[CheckRequest] = request
    check = 0
    while further is not None:
        for turn in range(further.rounds):
            places = batches.checked_places(network, size, batches.check_number(check, turn))
            adapter.reset({}, Batch(examples.inputs[places], examples.labels[places]))
            adapter.synchronize()
            host.mark(RESET)
            for _ in range(further.steps):
                step()
            adapter.synchronize()
            host.mark(STEPS)
        sampled = sample_outputs(contract.outputs(adapter, size))
        further = host.read()
        check += 1
    finite = bool(np.isfinite(sampled).all())
    return ParitySample(None, {}, 0, outputs=sampled.tolist() if finite else None)


def _finite(values: Any) -> Optional[List[float]]:
    numbers = [float(value) for value in values]
    return numbers if all(map(math.isfinite, numbers)) else None


def save_reference(
    adapter: Adapter, network: Network, path: str, before: Dict[str, np.ndarray]
) -> None:
    """Run the recipe's steps and write the observations of each as the reference file.

    With local steps only those after the first exchange are kept: a shorter check would not see the
    exchange.
    """
    recipe = recipe_of(network, adapter.cell)
    adapter.set_learning_rate(recipe.learning_rate)
    losses: List[float] = []
    observations = []
    for step in range(recipe.steps):
        adapter.step()
        adapter.synchronize()
        losses.append(contract.loss(adapter))
        if step >= adapter.cell.local_steps:
            parameters = contract.current_parameters(adapter, network)
            observations.append(observe(parameters, before, list(losses)))
    save(path, observations[-1], observations[:-1])


def save_output_reference(adapter: Adapter, network: Network, path: str) -> None:
    """Write the sampled outputs of the mini-batch as the reference file.

    Where each step takes another mini-batch, those of the first steps are written.
    """
    count = network.parity.steps if adapter.cell.placement in FED else 1
    outputs: Dict[str, Any] = {}
    for step in range(1, count + 1):
        adapter.step()
        adapter.synchronize()
        outputs["outputs%d" % step] = sample_outputs(adapter.outputs())
    np.savez_compressed(path, **outputs)
