"""A plain script as a user's own step, so that it can take turns with `adapter_as_step`.

The variable DLBENCH_PLAIN holds JSON: the script's ``script``, ``mode``, ``task``, ``network`` and
``batch_size``.
"""

import importlib
import json
import os
import sys
from pathlib import Path

# The scripts beside this file have the names of frameworks.
sys.path[:] = [
    entry for entry in sys.path if Path(entry).resolve() != Path(__file__).resolve().parent
]
sys.path.append(str(Path(__file__).resolve().parents[1]))

yardstick = importlib.import_module("plain.yardstick")
last = {}


def prepare(cell):
    """Build the training, or the network for inference; return a step."""
    launch = json.loads(os.environ["DLBENCH_PLAIN"])
    arguments = yardstick.Arguments(
        launch["network"], launch["batch_size"], cell.threads, launch["mode"]
    )
    script = importlib.import_module("plain." + launch["script"])
    inputs, labels = yardstick.mini_batch(arguments)
    trains = launch["task"] == "training"
    step, wait = (
        script.train(arguments, inputs, labels) if trains else script.infer(arguments, inputs)
    )
    last["wait"] = wait or (lambda: None)
    return step


def synchronize():
    """Wait for the end of the last step."""
    last["wait"]()
