"""The figures of Brandfonbrener's study of small recurrent networks, in the form that our reports take.

Brandfonbrener, 2017: simple recurrent networks trained on one example at a time, on two GPUs, a cluster's CPU and a
laptop. A figure there is the seconds of a whole run of 2000 updates, what the framework compiled first included; here
it is divided by their number. The modes of the rows are the numbers of the figures, since they tell what was the same.
"""

from typing import Any, NamedTuple

from dlbench.adapters import axes
from dlbench.adapters.protocol import Status
from dlbench.reports.against.read_tables import lines_of
from dlbench.reports.cells import NO_THREADS, CellResult, Matrix, assemble
from dlbench.reports.statistics import published
from dlbench.reports.storage.hosts import Host
from dlbench.reports.storage.networks import Networks

NAME = "brandfonbrener2017"
UPDATES = 2000
"""Of a run: 1000 examples, twice, one at a time."""
SOURCE = "Brandfonbrener, 2017, Figures 2 to 10: the seconds of a run divided by its 2000 updates, compilation included"
CAVEAT = (
    "Data are on the device in Figures 2, 4 and, by its level, 5 (GPU), and handed over with each update in Figure 3; "
    "of the others it is not said. The first trial of several figures took far longer than others (section 4.2)."
)
HOSTS = {
    "Tesla K80 (Grace)": Host("brandfonbrener2017:k80", "Tesla K80", description=(("GPU", "NVIDIA Tesla K80"),)),
    "M2090 (Omega; the caption says M2070)": Host(
        "brandfonbrener2017:m2090", "Tesla M2090", description=(("GPU", "NVIDIA Tesla M2090"),)
    ),
    "Ivy Bridge 2.2 GHz 10 cores (Grace)": Host(
        "brandfonbrener2017:e5-2660v2", "E5-2660 v2, 10 cores", 10, description=(("CPU", "Intel Xeon E5-2660 v2"),)
    ),
    "MacBook Pro 2016 i7 2.9 GHz": Host(
        "brandfonbrener2017:macbook", "MacBook Pro 2016", description=(("CPU", "Intel Core i7, 2.9 GHz"),)
    ),
}


class Trial(NamedTuple):
    """One run of the study."""

    figure: int
    software: str
    device: str
    machine: str
    activation: str
    inputs: int
    """As many as outputs."""
    hidden: int
    steps: int
    seconds: float
    first: bool
    """Whether it was the first of its figure, of which the author says that it took too long."""


def trials() -> list[Trial]:
    """Return every run, in the order of the figures."""
    return [
        Trial(
            int(line["figure"].removeprefix("Figure ")),
            line["software"],
            line["device"],
            line["machine"],
            line["activation"],
            int(line["n_in"]),
            int(line["n_rec"]),
            int(line["n_steps"]),
            float(line["seconds"]),
            line["note"].startswith("first trial"),
        )
        for line in lines_of("brandfonbrener2017.csv")
    ]


def figures(first: bool = True) -> Matrix:
    """Return all figures as one matrix, with the first trial of each or without."""
    hosts = {host.fingerprint: host for host in HOSTS.values()}
    shown = [each for each in trials() if first or not each.first]
    return assemble(map(_cell, shown), hosts, [f"Source: {SOURCE}. {CAVEAT}"])


def networks() -> Networks:
    """Return the networks of the study, as records keep them."""
    return {(_name(each), ""): {"family": "elman", "numbers": _numbers(each)} for each in trials()}


def _numbers(trial: Trial) -> dict[str, Any]:
    sizes = {"hidden": trial.hidden, "steps": trial.steps, "activation": trial.activation}
    return {"inputs": trial.inputs, "outputs": trial.inputs, **sizes}


def _name(trial: Trial) -> str:
    size = f"r{trial.hidden}-t{trial.steps}-i{trial.inputs}-o{trial.inputs}"
    return f"rnn-{size}-{trial.activation}"


def _cell(trial: Trial) -> CellResult:
    seconds = trial.seconds / UPDATES
    return CellResult(
        machine=HOSTS[trial.machine].fingerprint,
        cell=axes.BLANK._replace(
            network=_name(trial),
            batch_size=1,
            framework=trial.software,
            mode=f"Figure {trial.figure}",
            device=trial.device,
            threads=NO_THREADS,
        ),
        status=Status.OK,
        reason="",
        seconds=published(seconds),
        items_per_second=1 / seconds,
        run=NAME,
    )
