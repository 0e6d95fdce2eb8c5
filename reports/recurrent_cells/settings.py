"""Losses as a published table has them, and one's own in the same form."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from dlbench.reports.published import lines_of
from dlbench.reports.recurrent_cells.learnt import Learnt


class Setting(NamedTuple):
    """A network of a table of losses."""

    text: str
    cell: str
    layers: int
    size: int


Losses = Mapping[Setting, float]


def published_losses() -> Losses:
    """Return the test losses of Karpathy and others 2016; there is none of the largest plain networks."""
    return {
        Setting(line["dataset"], line["cell"], int(line["layers"]), int(line["size"])): float(line["loss"])
        for line in lines_of("karpathy2016_losses.csv")
        if line["loss"]
    }


def losses_of(learnt: Iterable[Learnt]) -> Losses:
    """Return the losses of networks on texts, those that differ in anything else under names of their own."""
    found = {}
    for of_text in learnt:
        for net in of_text.nets:
            if (loss := of_text.loss(net)) is not None:
                embedded = f", embedding {net.embedding}" if net.embedding else ""
                name = f"{of_text.text.name} {of_text.text.digest[:6]}, {net.steps} steps, mini-batch {net.batch_size}"
                found[Setting(name + embedded, net.cell, net.layers, net.size)] = loss
    return found
