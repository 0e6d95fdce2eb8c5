"""What `dlbench list` and `dlbench plan` show, as data: the tables and the JSON come from the same rows."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from dlbench.adapters.networks import digest_of, specification
from dlbench.adapters.protocol import to_dict

from ..environments import environment
from ..environments.interpreters import inspect
from ..errors import FrameworkEnvironmentError
from ..planning import networks as of_dlbench
from ..planning import suite
from ..planning.framework import find, offered
from ..planning.plan import Plan
from ..run.capabilities import Capabilities


def networks() -> list[dict[str, Any]]:
    """Return each network with its parameters, mini-batch and FLOPs of a training step at that mini-batch."""
    return [
        {
            "name": network.name,
            "summary": network.summary,
            "batch_size": network.batch_size,
            "parameters": network.family.parameter_count(),
            "gflop_per_step": network.family.training_flops(network.batch_size) / 1e9,
            "specification": digest_of(network),
            **specification(network.family),
        }
        for network in of_dlbench.shipped().values()
    ]


def frameworks() -> list[dict[str, Any]]:
    """Return each framework with the state and interpreter of its environment."""
    found = []
    for framework in offered().values():
        located = environment.locate(framework)
        state, interpreter, reason = located.state, located.interpreter, located.reason
        version: str | None = None
        if interpreter:
            try:
                version = inspect(interpreter).name
            except FrameworkEnvironmentError:
                state, interpreter = environment.State.UNAVAILABLE, None
                reason = (
                    f"The interpreter of its environment, {located.interpreter}, does not start. `dlbench env remove "
                    f"{framework.name}`, then `dlbench env build {framework.name}`, makes it anew."
                )
        about = ("name", "title", "summary", "modes", "default_mode", "historic", "large", "successor")
        found.append(
            {
                **{key: getattr(framework, key) for key in about},
                "modes": list(framework.modes),
                "settings": [
                    {"name": name, **tuned.model_dump(mode="json")} for name, tuned in framework.tuning.items()
                ],
                "state": state.value,
                "interpreter": None if interpreter is None else str(interpreter),
                "python": version,
                "needs_python": list(framework.python),
                "download_megabytes": framework.download_megabytes,
                "reason": reason,
            }
        )
    return found


def capabilities(found: Mapping[str, Capabilities]) -> list[dict[str, Any]]:
    """Return what each framework answered, what is known of its project, and where that was read."""
    listed = []
    for name, told in found.items():
        framework = find(name)
        project = framework.project
        newest = max(project.releases, key=lambda release: release.date, default=None) if project else None
        kinds: dict[str, list[bool]] = {}
        for network in of_dlbench.shipped().values():
            kinds.setdefault(network.family.kind, []).append(not told.networks.get(network.name, "not asked"))
        listed.append(
            {
                "name": name,
                "title": framework.title,
                "modes": {mode: about.summary for mode, about in framework.modes.items()},
                "problem": told.problem,
                "version": told.version,
                "networks": {
                    network: {"supported": not reason, "reason": reason} for network, reason in told.networks.items()
                },
                "kinds": {kind: None if told.problem else all(able) for kind, able in kinds.items()},
                "answers": {key: {"answer": pair[0], "how": pair[1]} for key, pair in told.answers.items()},
                "threads": None
                if told.threads is None
                else {**dataclasses.asdict(told.threads), "words": told.threads.words},
                "licence": project.licence if project else None,
                "first_release": str(project.first_release) if project and project.first_release else None,
                "last_release": {"version": newest.version, "date": str(newest.date)} if newest else None,
                "source": project.source if project else None,
            }
        )
    return listed


def suites() -> list[dict[str, Any]]:
    """Return each shipped suite with its axes in short."""
    return [
        {
            "name": each.name,
            "summary": each.summary,
            "networks": list(each.its_networks),
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
        "interval": planned.interval,
        "cell_seconds": planned.cell_seconds,
        "protocol": to_dict(planned.protocol),
        "cells": [to_dict(cell) for cell in planned.cells],
        "left_out": [to_dict(cell) for cell in planned.left_out],
        "order": [{"cell": planned.cells.index(launch.cell), "block": launch.block} for launch in planned.order()],
    }
