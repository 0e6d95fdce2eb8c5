"""Schedulers."""

from dlbench.reports.storage.servers.fleets import Fleet

from .scheduler import Scheduler

NAMES = ("slurm", "local", "script")


def of(fleet: Fleet) -> Scheduler:
    raise NotImplementedError
