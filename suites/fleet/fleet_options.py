"""The options of `dlbench fleet run` that are not those of `dlbench run`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from ..commands import options
from ..commands.options import OptionGroup
from ..errors import UsageError, unknown_name
from ..planning import values
from . import schedulers
from .schedulers.slurm_options import read_further

USUAL = "slurm"


@dataclass(frozen=True)
class Where(OptionGroup):
    """Which machines, and how they are reached."""

    on: Annotated[
        str | None,
        typer.Option(
            "--on",
            metavar="|".join(schedulers.NAMES),
            help=f"Slurm, processes on this machine, or scripts for any other scheduler ({USUAL}).",
        ),
    ] = None
    nodes: Annotated[int | None, typer.Option("--nodes", min=1, help="How many nodes: idle ones first.")] = None
    nodelist: Annotated[str | None, typer.Option("--nodelist", metavar="NAMES", help="These nodes: n1,n2.")] = None
    partition: Annotated[str, typer.Option("--partition", help="Slurm's partition.")] = ""
    exclusive: Annotated[
        bool | None, typer.Option("--exclusive/--shared", help="Whether a job has its node to itself in Slurm (yes).")
    ] = None
    time_limit: Annotated[str, typer.Option("--time-limit", help="Slurm ends a job after this: 90m, 8h.")] = ""
    account: Annotated[str, typer.Option("--account", help="Slurm's account.")] = ""
    qos: Annotated[str, typer.Option("--qos", help="Slurm's quality of service.")] = ""
    slurm_option: Annotated[
        list[str] | None,
        typer.Option("--slurm-option", metavar="KEY=VALUE", help="A further option of sbatch: constraint=zen4."),
    ] = None
    node_python: Annotated[
        str, typer.Option("--node-python", metavar="PATH", help="The Python that has dlbench on the nodes (this one).")
    ] = ""

    @property
    def named(self) -> list[str]:
        """The nodes that --nodelist names; empty without it."""
        return [] if self.nodelist is None else values.words(self.nodelist)

    @property
    def settings(self) -> dict[str, str]:
        """What is told of every job, by name, where it was given; raises UsageError for what cannot be."""
        found = {"partition": self.partition, "account": self.account, "qos": self.qos}
        if self.time_limit:
            found["minutes"] = f"{values.duration(self.time_limit) / 60:g}"
        if self.exclusive is not None:
            found["shared"] = "no" if self.exclusive else "yes"
        found |= {f"further.{name}": value for name, value in read_further(self.slurm_option or ()).items()}
        found["python"] = self.node_python
        return {name: value for name, value in found.items() if value}

    def scheduler(self, begun: str | None = None) -> str:
        """Return the scheduler's name: the one that was given, or that a fleet was begun with.

        Raises UsageError for one that is none, for another than the fleet's, and for settings that are Slurm's alone.
        """
        name = self.on or begun or USUAL
        if name not in schedulers.NAMES:
            raise unknown_name("scheduler", name, schedulers.NAMES)
        if begun not in (None, name):
            raise UsageError(f"The fleet was begun with --on {begun}, and its jobs cannot go on elsewhere.")
        if name != "slurm" and set(self.settings) - {"python"}:
            raise UsageError(f"--on {name} has no partition, account, time limit and the like. Leave them out.")
        return name


@dataclass(frozen=True)
class Submitting(OptionGroup):
    """What is written where, and what ends it."""

    store_file: options.StoreFile = options.DEFAULT_STORE
    budget: options.TotalBudget = None
    no_build: options.NoBuild = False
    seed: options.Seed = None
    folder: Annotated[
        Path | None,
        typer.Option("--folder", metavar="FOLDER", help="For logs and scripts; all nodes must see it under this name."),
    ] = None
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with what jobs of the suite's newest fleet left when they ended.")
    ] = False
    fleet: Annotated[str | None, typer.Option("--fleet", metavar="ID", help="With --resume: this fleet.")] = None
    wait: Annotated[bool, typer.Option("--wait", help="Wait until all jobs have ended.")] = False

    @property
    def of_each_job(self) -> "OfEachJob":
        """Those that each job is told."""
        return OfEachJob(self.budget, self.no_build, self.seed)


@dataclass(frozen=True)
class OfEachJob(OptionGroup):
    """What `dlbench run` takes of the above."""

    budget: options.TotalBudget = None
    no_build: options.NoBuild = False
    seed: options.Seed = None
