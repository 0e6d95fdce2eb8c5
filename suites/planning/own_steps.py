"""Steps of the user's own: files that ``--step`` names, each a row of the one network whose mathematics nobody knows.

dlbench run threads --step train_step.py --python ~/venv/bin/python
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dlbench.adapters.families.own import LOSS_TOLERANCE, Own

from ..errors import UsageError
from . import framework
from .framework import Framework, Mode
from .plan import Plan
from .suite import Suite

NETWORK = "own"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True)
class OwnSteps:
    """What a command was given of them."""

    names: tuple[str, ...]
    loss_tolerance: float = LOSS_TOLERANCE

    def instead_of(self, suite: Suite) -> Suite:
        """Return the suite with these steps in the place of its networks and frameworks."""
        kept = {name: getattr(suite, name) for name in Suite.model_fields}
        network = {"name": NETWORK, "family": Own.name}
        changed = {"networks": (NETWORK,), "frameworks": self.names, "network": (network,), "grid": ()}
        of_others: dict[str, object] = {"batch_sizes": {}, "cpu_batch_sizes": {}, "settings": {}}
        return Suite.model_construct(**{**kept, **changed, **of_others})

    def tolerated(self, plan: Plan) -> Plan:
        """Return the plan with the tolerance that was asked for."""
        network = plan.networks[NETWORK]
        recipe = network.parity._replace(loss_tolerance=self.loss_tolerance)
        return replace(plan, networks={**plan.networks, NETWORK: network._replace(parity=recipe)})


def name_of(text: str, option: str = "--step") -> str:
    """Return the row's name that a file gives; raises UsageError where it can be none."""
    path = Path(text)
    if path.suffix != ".py" or not _NAME.fullmatch(path.stem):
        raise UsageError(
            f"{option} {text[:60]!r} is not a Python file that can be imported. Name it with letters, digits and "
            "underscores, as in train_step.py."
        )
    if path.stem in framework.shipped():
        raise UsageError(f"{option} {text}: {path.stem} is the name of a framework of dlbench. Rename the file.")
    return path.stem


def read(text: str, option: str = "--step") -> Framework:
    """Return a framework that runs this file; raises UsageError where there is none."""
    name = name_of(text, option)
    try:
        path = Path(text).expanduser().resolve()
        there = path.is_file()
    except (OSError, RuntimeError, ValueError) as error:
        raise UsageError(f"{option}: {text[:60]} cannot be looked into: {error}.") from error
    if not there:
        raise UsageError(f"{option}: there is no file {text}. `dlbench new step {text}` writes one to start from.")
    ours = framework.shipped()["step"]
    mode = Mode(summary=ours.modes["file"].summary, default=True, settings={"file": str(path)})
    changed = {"name": name, "title": name, "summary": f"the step in {path.name}", "hidden": False}
    return ours.model_copy(update={**changed, "file": path, "modes": {"file": mode}})


def register(texts: list[str] | None) -> list[str] | None:
    """Add a row for each file; for typer's callbacks: gives back what it was given. Raises UsageError."""
    seen: dict[str, str] = {}
    for text in texts or []:
        made = read(text)
        if seen.setdefault(made.name, text) != text:
            raise UsageError(f"--step: {seen[made.name]} and {text} have one name. Rename one of the files.")
        framework.add(made)
    return texts


def interpreters(python: Iterable[str], names: Sequence[str]) -> list[str]:
    """Return the words of --python with the rows that a path alone stands for: those of every step."""
    found: list[str] = []
    for text in python:
        found += [text] if "=" in text or not names else [f"{name}={text}" for name in names]
    return found
