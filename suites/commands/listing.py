"""What `dlbench list` and `dlbench plan` show, as data: the tables and the JSON come from the same rows."""

from typing import Any

from dlbench.adapters.networks import NETWORKS, parameter_count, training_flops
from dlbench.adapters.protocol import to_dict

from .. import environment, suite
from ..framework import offered
from ..interpreters import inspect
from ..plan import Plan


def networks() -> list[dict[str, Any]]:
    """Return each network with its parameters, mini-batch and FLOPs of a training step at that mini-batch."""
    return [
        {
            "name": network.name,
            "summary": network.summary,
            "batch_size": network.batch_size,
            "parameters": parameter_count(network),
            "gflop_per_step": training_flops(network, network.batch_size) / 1e9,
        }
        for network in NETWORKS.values()
    ]


def frameworks() -> list[dict[str, Any]]:
    """Return each framework with the state and interpreter of its environment."""
    found = []
    for framework in offered().values():
        located = environment.locate(framework)
        version = inspect(located.interpreter).name if located.interpreter else None
        found.append(
            {
                "name": framework.name,
                "title": framework.title,
                "summary": framework.summary,
                "modes": list(framework.modes),
                "default_mode": framework.default_mode,
                "historic": framework.historic,
                "successor": framework.successor,
                "state": located.state.value,
                "interpreter": None if located.interpreter is None else str(located.interpreter),
                "python": version,
                "needs_python": list(framework.python),
                "download_megabytes": framework.download_megabytes,
                "reason": located.reason,
            }
        )
    return found


def suites() -> list[dict[str, Any]]:
    """Return each shipped suite with its axes in short."""
    return [
        {
            "name": each.name,
            "summary": each.summary,
            "networks": list(each.networks),
            "frameworks": list(each.frameworks),
            "threads": each.threads,
            "launches": each.protocol.launches,
        }
        for each in suite.shipped().values()
    ]


def plan(planned: Plan) -> dict[str, Any]:
    """Return a plan as plain JSON types: its cells in the suite's order, its launches in launching order."""
    return {
        "suite": planned.suite,
        "seed": planned.seed,
        "launches_per_cell": planned.launches,
        "launches_most": planned.most,
        "precision": planned.precision,
        "cell_seconds": planned.cell_seconds,
        "protocol": to_dict(planned.protocol),
        "cells": [to_dict(cell) for cell in planned.cells],
        "left_out": [to_dict(cell) for cell in planned.left_out],
        "order": [{"cell": planned.cells.index(launch.cell), "block": launch.block} for launch in planned.order()],
    }
