"""A session of pytest with the plugin."""

import importlib
import importlib.metadata
import json

from processes import suite_of_null

PLUGIN = "dlbench.suites.in_pytest.plugin"
# An editable install made before the entry point was there does not know it.
INSTALLED = any(each.value == PLUGIN for each in importlib.metadata.entry_points(group="pytest11"))
ARGUMENTS = (
    *(() if INSTALLED else ("-p", PLUGIN)),
    *("-p", "no:cacheprovider", "-p", "no:hypothesispytest", "-p", "no:timeout"),
    "--benchmark-quiet",
)
SUITE = suite_of_null(
    step_seconds=0.002,
    threads=[1, 2],
    protocol={"launches": 2, "warmup_steps": 1, "minimum_steps": 2, "cell_seconds": 20.0},
)


def content(pytester, name="out.json"):
    return json.loads(pytester.path.joinpath(name).read_text())


# Launches that were made up: verdicts must not hang on what else this machine does.
MADE_UP = """
from dlbench.adapters.protocol import Outcome, Status
from dlbench.suites.run import session as runs
from dlbench.suites.run.launcher import Launched
from processes import suite_of_null

class MadeUp:
    made = 0

    def __call__(self, order, tick):
        MadeUp.made += 1
        seconds = order.launch.settings["step_seconds"] / order.launch.cell.threads
        samples = [round(seconds * 1e9 * (1 + 0.001 * (MadeUp.made % 3))) for _ in range(5)]
        return Launched(Outcome(Status.OK, samples_ns=samples), 0.1)

runs.launch_process = MadeUp()
"""
