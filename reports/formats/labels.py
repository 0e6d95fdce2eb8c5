"""Where names stand beside marks: none over another, as few as possible over a mark, each as near as can be.

Everything is in shares of a panel: (0, 0) is its lower left corner, (1, 1) its upper right one.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from dlbench.reports.formats.pictures import GREY

if TYPE_CHECKING:
    from matplotlib.axes import Axes

GAP = 0.02
"""Between a mark and its name, of the panel's width."""
_OVER_NAME, _OUTSIDE, _OVER_MARK, _TO_THE_LEFT = 100.0, 30.0, 3.0, 0.5
"""What is worse than being a line further away, and by how many lines."""
_LINES = 8
"""A name stands at most so many lines above or below its mark."""


class Box(NamedTuple):
    """A rectangle that a name or a mark takes."""

    left: float
    bottom: float
    right: float
    top: float

    def meets(self, other: "Box") -> bool:
        """Tell whether the two share more than an edge."""
        beside = self.right <= other.left or other.right <= self.left
        return not (beside or self.top <= other.bottom or other.top <= self.bottom)


class Label(NamedTuple):
    """Where a name stands: its end beside the mark, and its middle's height."""

    x: float
    y: float
    align: Literal["left", "right"]
    box: Box

    def write(self, panel: "Axes", name: str, mark: tuple[float, float], size: float) -> None:
        """Write a name of so many points there, with a thin line to its mark, which is given in the panel's units."""
        panel.annotate(
            name,
            mark,
            xytext=(self.x, self.y),
            textcoords="axes fraction",
            ha=self.align,
            va="center",
            fontsize=size,
            arrowprops={"arrowstyle": "-", "color": GREY, "linewidth": 0.35, "shrinkA": 0, "shrinkB": 2},
        )


def place_labels(
    anchors: Sequence[tuple[float, float]],
    widths: Sequence[float],
    line_height: float,
    taken: Iterable[Box] = (),
    marks: Iterable[Box] = (),
) -> list[Label]:
    """Return where the names of these marks (x, y) stand, in their order.

    Greedy, from left to right: each takes the cheapest place that those before it left; two names meet only where
    every place within `_LINES` lines is taken. ``taken`` are boxes of other names, ``marks`` those of all marks.
    """
    names, of_marks = list(taken), list(marks)
    found: dict[int, Label] = {}
    for number in sorted(range(len(anchors)), key=lambda number: anchors[number]):
        label = min(
            _choices(anchors[number], widths[number], line_height),
            key=lambda choice: _cost(choice, anchors[number], line_height, names, of_marks),
        )
        found[number] = label
        names.append(label.box)
    return [found[number] for number in range(len(anchors))]


def _choices(anchor: tuple[float, float], width: float, line_height: float) -> list[Label]:
    x, y = anchor
    shifts = [0.0, *(sign * step / 2 for step in range(1, 2 * _LINES + 1) for sign in (1, -1))]
    labels = []
    for shift in shifts:
        middle = y + shift * line_height
        bottom, top = middle - line_height / 2, middle + line_height / 2
        labels.append(Label(x + GAP, middle, "left", Box(x + GAP, bottom, x + GAP + width, top)))
        labels.append(Label(x - GAP, middle, "right", Box(x - GAP - width, bottom, x - GAP, top)))
    return labels


def _cost(
    label: Label, anchor: tuple[float, float], line_height: float, names: Sequence[Box], marks: Sequence[Box]
) -> float:
    box = label.box
    outside = box.left < 0 or box.bottom < 0 or box.right > 1 or box.top > 1
    return (
        _OVER_NAME * sum(box.meets(other) for other in names)
        + _OUTSIDE * outside
        + _OVER_MARK * sum(box.meets(other) for other in marks)
        + _TO_THE_LEFT * (label.align == "right")
        + abs(label.y - anchor[1]) / line_height
    )
