"""Holds what a launch's parity check showed against the float64 reference, here and not in the guest."""

import numpy as np

from dlbench.adapters.launch import parity
from dlbench.adapters.launch.parity import Observation
from dlbench.adapters.networks import Network
from dlbench.adapters.protocol import Answer, Outcome, Outside, Parity

from ..launching.control import UnreadableError
from ..launching.launcher import Order

_STILL = "no parameter changed in all the timed steps: what was timed does not train"
_NOT_FINITE_FIRST = "the losses of the first steps are not finite"
_NOT_FINITE = "the losses or updates of the parity check are not finite"


def parity_of(outcome: Outcome, order: Order, network: Network) -> Parity:
    """Return the verdict on a launch; raises UnreadableError where its answer does not fit what was asked for."""
    cell, answer, outside = order.launch.cell, outcome.answer, outcome.outside
    allowed = parity.allowance(network, cell.precision)
    if not network.family.specified:
        return _of_own(answer, order.first_losses, network)
    if answer is None or outside is None:
        if order.computes:
            raise UnreadableError("it carried out no parity check")
        return parity.unchecked(network, outcome.reason or "it computes nothing", allowed)
    if order.reference is None:
        verdict = parity.unchecked(network, f"no reference for mini-batch {cell.batch_size}", allowed)
    else:
        reference = parity.load(str(order.reference), outside.check_steps)
        found = _observation(answer, reference, outside)
        verdict = parity.judge(found, reference, network.parity, allowed)
        if answer.losses is None or None in answer.updates.values():
            verdict = verdict._replace(verdict="disagrees", reason=_NOT_FINITE)
    if answer.moved is False:
        reasons = (verdict.reason, _STILL) if verdict.verdict == "disagrees" else (_STILL,)
        verdict = verdict._replace(verdict="disagrees", reason="; ".join(reasons))
    return verdict._replace(seconds=outside.reset_seconds + outside.read_seconds)


def _of_own(answer: Answer | None, first: tuple[float, ...] | None, network: Network) -> Parity:
    """Hold the losses of a launch's first steps against those of the first launch; of that one they are the measure."""
    losses = [] if answer is None else answer.losses
    if losses is None:
        return parity.unchecked(network, "")._replace(verdict="disagrees", reason=_NOT_FINITE_FIRST)
    if not losses:
        return parity.unchecked(network, "the step tells no loss")
    pairs = list(zip(losses, first or losses, strict=False))
    error = max(abs(here - there) / max(abs(there), 1e-30) for here, there in pairs)
    tolerance = network.parity.loss_tolerance
    reason = ""
    if error > tolerance:
        reason = (
            f"losses of the first {len(pairs)} steps are off by {error:.1e} from those of the run's first launch "
            f"(tolerance {tolerance:.0e})"
        )
    verdict = "disagrees" if reason else "agrees"
    return Parity(verdict, reason, losses, error, None, "", tolerance, tolerance, 0.0)


def _observation(answer: Answer, reference: Observation, outside: Outside) -> Observation:
    """Return the answer as arrays; what was not finite is NaN."""
    losses = [float("nan")] * outside.check_steps if answer.losses is None else answer.losses
    if len(losses) != outside.check_steps:
        raise UnreadableError(f"{len(losses)} losses, where {outside.check_steps} steps were asked for")
    if set(answer.updates) != set(reference.updates):
        raise UnreadableError("the updates are not those of the network's parameters")
    updates = {}
    for name, expected in reference.updates.items():
        told = answer.updates[name]
        updates[name] = np.full(expected.shape, np.nan) if told is None else np.array(told)
        if updates[name].shape != expected.shape:
            raise UnreadableError(f"{len(updates[name])} entries of {name}, where {len(expected)} were asked for")
    return Observation(losses, updates)
