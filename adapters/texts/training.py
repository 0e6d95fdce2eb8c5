"""The part of a launch that trains on a text, after everything that is timed; nothing of it is timed.

It starts from the weights that the network starts with, whatever the timed steps did to them.
"""

import math
import sys
import time
import traceback
from typing import Callable, List, Optional

from .. import networks
from ..base import Adapter
from ..launch import batches, contract
from ..launch.host import TRAINING
from ..networks import Network
from ..protocol import Launch, Outcome
from . import mini_batches

#: Tells what the guest does, and how many seconds more it will take.
Announce = Callable[[str, Optional[float]], None]


def wanted(launch: Launch) -> bool:
    """Tell whether the launch trains on a text."""
    return launch.protocol.curve_steps > 0 and launch.text is not None


def refusal(adapter: Adapter, network: Network, launch: Launch) -> str:
    """Return why the launch cannot train on its text; empty where it can, or where it is not asked to."""
    if not wanted(launch):
        return ""
    cell = launch.cell
    if not network.family.alphabet:
        return "no training on a text: %s takes no symbols" % network.name
    for what, value, usual in (
        ("world size", cell.world_size, 1),
        ("precision", cell.precision, "float32"),
        ("placement", cell.placement, "resident"),
    ):
        if value != usual:
            return "%s %s: training on a text is at %s only" % (what, value, usual)
    refused = contract.refuses_training(adapter, network)
    return refused or mini_batches.refusal(mini_batches.read(launch.text or ""), network)


def with_curve(outcome: Outcome, adapter: Adapter, launch: Launch, announce: Announce) -> Outcome:
    """Return the outcome with the losses of the blocks, as far as training came; what ended it early is noted."""
    curve: List[List[float]] = []
    try:
        return _trained(outcome, curve, adapter, launch, announce)
    except Exception as error:
        traceback.print_exc()
        sys.stderr.flush()
        words = adapter.words_of(error) or "%s: %s" % (type(error).__name__, " ".join(str(error).split())[:300])
        return outcome._replace(curve=curve, curve_ended=words)


def _trained(
    outcome: Outcome, curve: List[List[float]], adapter: Adapter, launch: Launch, announce: Announce
) -> Outcome:
    network = networks.from_data(launch.network or {})
    steps = launch.protocol.curve_steps
    announce(TRAINING, None)
    weights = batches.initial_weights(network) if adapter.computes else {}
    found = mini_batches.blocks(mini_batches.read(launch.text or ""), network, launch.cell.batch_size, steps)
    begun = time.perf_counter()
    done = 0
    for losses in contract.block_losses(adapter, weights, found, mini_batches.RmsProp()):
        mean = math.fsum(losses) / len(losses)
        if not math.isfinite(mean):
            last = min(done + mini_batches.BLOCK, steps)
            where = "in steps %d to %d" % (done + 1, last) if done < steps else "on the text kept to test with"
            return outcome._replace(curve=curve, curve_ended="the loss was not finite " + where)
        if done == steps:
            return outcome._replace(curve=curve, test_loss=mean)
        done += len(losses)
        curve.append([done, mean])
        announce("%s, step %d of %d" % (TRAINING, done, steps), (time.perf_counter() - begun) / done * (steps - done))
    raise contract.ContractBroken("train_on_text() ended after %d of %d steps" % (done, steps))
