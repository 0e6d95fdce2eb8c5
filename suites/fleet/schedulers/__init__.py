"""Schedulers: what each fleet's jobs are given to, one module each behind the contract in `scheduler.py`."""

from collections.abc import Callable, Mapping
from pathlib import Path

from dlbench.reports.storage.servers.fleets import Fleet

from .local import Local
from .scheduler import Scheduler
from .scripts import Scripts
from .slurm import Slurm
from .slurm_options import SlurmOptions

_FURTHER = "further."


def _slurm(folder: Path, settings: Mapping[str, str]) -> Slurm:
    given = {name: settings[name] for name in ("partition", "account", "qos", "python") if name in settings}
    further = {name.removeprefix(_FURTHER): value for name, value in settings.items() if name.startswith(_FURTHER)}
    minutes = float(settings["minutes"]) if "minutes" in settings else None
    return Slurm(
        folder, SlurmOptions(**given, exclusive=settings.get("shared") != "yes", minutes=minutes, further=further)
    )


_MADE: Mapping[str, Callable[[Path, Mapping[str, str]], Scheduler]] = {
    "slurm": _slurm,
    "local": lambda folder, settings: Local(folder),
    "script": lambda folder, settings: Scripts(folder),
}
NAMES = tuple(_MADE)


def of(fleet: Fleet) -> Scheduler:
    """Return the scheduler that a fleet's jobs were or will be given to."""
    return _MADE[fleet.scheduler](Path(fleet.folder), dict(fleet.settings))
