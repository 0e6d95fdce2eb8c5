"""The verdict on a launch: whether its number may stand, and if not, why."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dlbench.adapters.networks import from_data
from dlbench.adapters.protocol import Outcome, Status
from dlbench.reports.formats.inert import one_line

from ..launching.control import UnreadableError
from ..launching.launcher import Launched, Order
from .limits import Limits
from .parity import parity_of
from .plausibility import Claim, implausible


def judged(
    order: Order, launched: Launched, limits: Limits | None, telemetry: Mapping[str, Any] | None = None
) -> Launched:
    """Return a launch with its parity and the status that it deserves; without limits no rate is too high.

    ``telemetry`` is what was sampled of its GPU.
    One of which nothing was seen from outside is returned as it is: adapters of an older version judged themselves.
    """
    outcome = launched.outcome
    if outcome.status is not Status.OK or order.launch.only_capabilities or outcome.outside is None:
        return launched
    try:
        return replace(launched, outcome=_judged(order, outcome, limits, telemetry))
    except UnreadableError as error:
        return replace(launched, outcome=Outcome(Status.CRASHED, f"its answer cannot be believed: {error}"))


def _judged(order: Order, outcome: Outcome, limits: Limits | None, telemetry: Mapping[str, Any] | None) -> Outcome:
    assert order.launch.network is not None
    assert outcome.outside is not None
    network = from_data(order.launch.network)
    verdict = parity_of(outcome, order, network)
    claim = Claim(order.launch.cell, network, outcome, outcome.outside, limits, telemetry)
    impossible = implausible(claim, order.computes)
    status, reason = Status.OK, ""
    if verdict.verdict == "disagrees":
        status, reason = Status.PARITY_FAILED, verdict.reason
    if impossible:
        status, reason = Status.IMPLAUSIBLE, "; ".join(filter(None, (impossible, reason)))
    return outcome._replace(status=status, reason=one_line(reason), parity=verdict, answer=None)
