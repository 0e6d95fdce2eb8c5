"""The verdict on a launch: parity with the float64 reference, plausibility, and the status that follows."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from dlbench.adapters.families import Family
from dlbench.adapters.launch import parity
from dlbench.adapters.launch.parity import Observation
from dlbench.adapters.networks import Network, from_data
from dlbench.adapters.protocol import Cell, HostObservation, Outcome, Parity, ParitySample, Status
from dlbench.reports.formats.inert import one_line

from .launcher import Launched, LaunchRequest
from .outcomes import UnreadableError
from .plausibility import Claim, Limits, implausible

FirstLosses = dict[tuple[object, ...], tuple[float, ...]]
"""The losses of the first steps of launches whose mathematics only their author knows, by `losses_key`."""


def losses_key(file: str, cell: Cell) -> tuple[object, ...]:
    """Return what launches share whose first losses must agree: the file's name, not threads, launch or build."""
    return file, cell.network, cell.device, cell.batch_size, cell.precision


def note_losses(known: FirstLosses, cell: Cell, outcome: Outcome, family: Family) -> None:
    """Keep the losses of a launch, where its mathematics is its author's and it is the first."""
    losses = outcome.parity.losses if outcome.parity is not None else []
    if not family.specified and outcome.status is Status.OK and losses:
        # Launches report their file's name as their framework: each of several files has its own.
        known.setdefault(losses_key(str(outcome.software.get("framework", "")), cell), tuple(losses))


_STILL = "no parameter changed in all the timed steps: what was timed does not train"
_NOT_FINITE_FIRST = "the losses of the first steps are not finite"
_NOT_FINITE = "the losses or updates of the parity check are not finite"


def parity_of(outcome: Outcome, request: LaunchRequest, network: Network) -> Parity:
    """Return the verdict on a launch; raises UnreadableError where its answer does not fit the request."""
    cell, answer, outside = request.launch.cell, outcome.parity_sample, outcome.outside
    allowed = parity.allowance(network, cell.precision)
    if not network.family.specified:
        return _of_own(answer, request.first_losses, network)
    if answer is None or outside is None:
        if request.computes:
            raise UnreadableError("it carried out no parity check")
        return parity.unchecked(network, outcome.reason or "it computes nothing", allowed)
    if request.reference is None:
        verdict = parity.unchecked(network, f"no reference for mini-batch {cell.batch_size}", allowed)
    else:
        reference = parity.load(str(request.reference), outside.check_steps)
        found = _observation(answer, reference, outside)
        verdict = parity.judge(found, reference, network.parity, allowed)
        if answer.losses is None or None in answer.updates.values():
            verdict = verdict._replace(verdict="disagrees", reason=_NOT_FINITE)
    if answer.moved is False:
        reasons = (verdict.reason, _STILL) if verdict.verdict == "disagrees" else (_STILL,)
        verdict = verdict._replace(verdict="disagrees", reason="; ".join(reasons))
    return verdict._replace(seconds=outside.reset_seconds + outside.read_seconds)


def _of_own(answer: ParitySample | None, first: tuple[float, ...] | None, network: Network) -> Parity:
    """Compare the losses of a launch's first steps with those of the first launch, which agrees with itself."""
    losses = [] if answer is None else answer.losses
    if losses is None:
        return parity.unchecked(network, "")._replace(verdict="disagrees", reason=_NOT_FINITE_FIRST)
    if not losses:
        return parity.unchecked(network, "the step reports no loss")
    pairs = list(zip(losses, first or losses, strict=False))
    error = max(abs(here - there) / max(abs(there), 1e-30) for here, there in pairs)
    tolerance = network.parity.loss_tolerance
    reason = (
        f"losses of the first {len(pairs)} steps are off by {error:.1e} from those of the run's first launch "
        f"(tolerance {tolerance:.0e})"
    )
    verdict, reason = ("disagrees", reason) if error > tolerance else ("agrees", "")
    return Parity(verdict, reason, losses, error, None, "", tolerance, tolerance, 0.0)


def _observation(answer: ParitySample, reference: Observation, outside: HostObservation) -> Observation:
    """Return the answer as arrays; what was not finite is NaN."""
    losses = [float("nan")] * outside.check_steps if answer.losses is None else answer.losses
    if len(losses) != outside.check_steps:
        raise UnreadableError(f"{len(losses)} losses, where {outside.check_steps} steps were asked for")
    if set(answer.updates) != set(reference.updates):
        raise UnreadableError("the updates are not those of the network's parameters")
    updates = {}
    for name, expected in reference.updates.items():
        entries = answer.updates[name]
        updates[name] = np.full(expected.shape, np.nan) if entries is None else np.array(entries)
        if updates[name].shape != expected.shape:
            raise UnreadableError(f"{len(updates[name])} entries of {name}, where {len(expected)} were asked for")
    return Observation(losses, updates)


def judged(
    request: LaunchRequest, launched: Launched, limits: Limits | None, telemetry: Mapping[str, Any] | None = None
) -> Launched:
    """Return a launch with its parity and the status that it deserves; without limits no rate is too high.

    ``telemetry`` are the samples of its GPU. A launch without a host observation is returned as it is: nothing was
    timed.
    """
    outcome = launched.outcome
    if outcome.status is not Status.OK or request.launch.only_capabilities or outcome.outside is None:
        return launched
    assert request.launch.network is not None
    network = from_data(request.launch.network)
    try:
        verdict = parity_of(outcome, request, network)
    except UnreadableError as error:
        return replace(launched, outcome=Outcome(Status.CRASHED, f"its answer cannot be believed: {error}"))
    claim = Claim(request.launch.cell, network, outcome, outcome.outside, limits, telemetry)
    impossible = implausible(claim, request.computes)
    status, reason = Status.OK, ""
    if verdict.verdict == "disagrees":
        status, reason = Status.PARITY_FAILED, verdict.reason
    if impossible:
        status, reason = Status.IMPLAUSIBLE, "; ".join(filter(None, (impossible, reason)))
    outcome = outcome._replace(status=status, reason=one_line(reason), parity=verdict, parity_sample=None)
    return replace(launched, outcome=outcome)
