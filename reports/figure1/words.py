"""The figure's names and sentences: what a place is called, and what a line says."""

from collections.abc import Sequence

from dlbench.adapters import axes
from dlbench.reports.cells import Place
from dlbench.reports.figure1.analysis import Figure1, Line
from dlbench.reports.formats.layout import number
from dlbench.reports.naming import extra_of_place, threads_name
from dlbench.reports.storage.hosts import name_among


def place_names(found: Figure1, machine: bool = True) -> dict[Place, str]:
    """Return what each place is called: its device, the machine's name, and what else differs or is unusual.

    Without ``machine`` the machine is named only where there are several.
    """
    places = found.places
    return {place: _place_name(found, place, places, machine) for place in places}


def sentence(line: Line) -> str:
    """Return what a line says: the best mini-batch, the knee, and where memory ended."""
    taking_part = [point for point in line.timed if point.takes_part]
    if not taking_part:
        words = ["no number that can be used"]
    elif len(taking_part) == 1:
        which = "could be used" if len(line.points) > 1 else "was measured"
        words = [f"only {taking_part[0].batch_size} {which}: nothing to compare"]
    else:
        words = [_best(line), _knee(line)]
    memory = "" if line.memory_ends is None else f"out of memory from {line.memory_ends}"
    return "; ".join(filter(None, [*words, memory]))


def _best(line: Line) -> str:
    point = next(point for point in line.points if point.batch_size == line.best)
    assert point.seconds is not None
    partly = "" if all(point.takes_part for point in line.timed) else " of those that count"
    text = f"best{partly} at {line.best}, {number(point.batch_size / point.seconds.median)} items/s"
    if line.as_fast:
        return f"{text} ({', '.join(map(str, line.as_fast))} not clearly faster)"
    largest = max(point.batch_size for point in line.timed)
    if line.best == largest:
        text += ", the largest that memory held" if line.memory_ends else ", the largest measured"
    return text


def _knee(line: Line) -> str:
    knee = line.knee
    if knee is None:
        return ""
    if knee.batch_size is None:
        last = [point for point in line.points if point.growth is not None][-1]
        assert last.growth is not None
        text = f"no knee: {last.batch_size} still gains {last.growth.value - 1:.0%} for a doubling"
        return text + (f" (at {knee.earliest} noise may hide one)" if knee.earliest is not None else "")
    if knee.latest is None:
        earlier = f" ({knee.earliest} or later)" if knee.earliest != knee.batch_size else " or later"
        return f"knee at {knee.batch_size}{earlier}"
    if knee.earliest != knee.latest:
        return f"knee at {knee.batch_size} ({knee.earliest} to {knee.latest})"
    return f"knee at {knee.batch_size}"


def _place_name(found: Figure1, place: Place, places: Sequence[Place], machine: bool) -> str:
    several_machines = len({each.machine for each in places}) > 1
    alike = [each for each in places if (each.machine, each.device) == (place.machine, place.device)]
    threads = threads_name(place.threads)
    said = bool(threads) and (place.on_cpu or len({each.threads for each in alike}) > 1)
    workers = extra_of_place(place.cell)
    parts = [_device(found, place) + ("" if said else workers), *([threads + workers] if said else [])]
    for axis in axes.of_role(axes.GROUP):
        seen = {getattr(each.cell, axis.name) for each in places}
        # A usual value is said where others stand beside it.
        if axis.usual is not None and seen != {axis.usual}:
            parts.append(axis.long.format(getattr(place.cell, axis.name)))
    name = ", ".join(filter(None, parts))
    if not (machine or several_machines):
        return name
    return f"{name}{',' if ',' in name else ''} of {name_among(found.hosts, place.machine)}"


def _device(found: Figure1, place: Place) -> str:
    """Return the device, of a GPU with its model, where the machine's description tells it."""
    kind, *index = place.device.split(":")  # a MIG device has a second number
    told = dict(found.hosts[place.machine].description).get(f"GPU {index[0]}", "") if kind == "cuda" else ""
    model = told.partition(",")[0]
    return f"{place.device} ({model})" if model else place.device
