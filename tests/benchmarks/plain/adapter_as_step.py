"""A suite's adapter as a user's own step, so that it can take turns with a plain script
(`as_step`).

The variable DLBENCH_PLAIN holds JSON: the cell's ``framework``, ``adapter``, ``mode`` and ``task``,
its ``settings``, and the network as ``data``. The guest's own modules are those of the process that
imports this file.
"""

import importlib
import json
import os
import sys
import tempfile
from pathlib import Path

# The scripts beside this file have the names of frameworks.
sys.path[:] = [
    entry for entry in sys.path if Path(entry).resolve() != Path(__file__).resolve().parent
]

GUEST = "_dlbench_guest"
last = {}


def guest(name):
    """Return a module of the guest."""
    return importlib.import_module(GUEST + "." + name)


def prepare(cell):
    """Build the training, or the trained network, as a launch does; return a step."""
    launch = json.loads(os.environ["DLBENCH_PLAIN"])
    batches = guest("launch.batches")
    network = guest("networks").from_data(launch["data"])
    cell = cell._replace(
        framework=launch["framework"],
        adapter=launch["adapter"],
        mode=launch["mode"],
        network=launch["network"],
        batch_size=launch["batch_size"],
        task=launch["task"],
    )
    adapter = guest(launch["adapter"] + ".adapter").ADAPTER(
        cell, launch["settings"], tempfile.mkdtemp()
    )
    adapter.import_modules()
    weights = batches.initial_weights(network, batches.TIMED)
    batch = batches.mini_batch(network, launch["batch_size"], purpose=batches.TIMED)
    last["wait"] = adapter.synchronize
    if launch["task"] == "inference":
        adapter.prepare_inference(network, weights, batches.statistics(network), batch)
        adapter.synchronize()
        return adapter.infer
    adapter.prepare(network, weights, batch)
    adapter.synchronize()
    adapter.set_learning_rate(0.01)
    return adapter.step


def synchronize():
    """Wait for the end of the last step."""
    last["wait"]()
