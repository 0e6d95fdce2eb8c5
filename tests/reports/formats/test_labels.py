"""Names beside marks: none over another, near their marks, inside the panel where there is room."""

from hypothesis import given
from hypothesis import strategies as st

from dlbench.reports.formats.labels import Box, place_labels

HEIGHT = 0.055
shares = st.floats(0.0, 1.0)
anchors = st.lists(st.tuples(shares, shares), min_size=1, max_size=8)


@given(anchors, st.floats(0.05, 0.3))
def test_no_name_stands_over_another(marks: list[tuple[float, float]], width: float) -> None:
    labels = place_labels(marks, [width] * len(marks), HEIGHT)
    boxes = [label.box for label in labels]
    assert not any(one.meets(other) for place, one in enumerate(boxes) for other in boxes[:place])


@given(anchors, st.floats(0.05, 0.3))
def test_each_name_ends_beside_its_own_mark(marks: list[tuple[float, float]], width: float) -> None:
    for (x, _), label in zip(marks, place_labels(marks, [width] * len(marks), HEIGHT), strict=True):
        edge = label.box.left if label.align == "left" else label.box.right
        assert abs(edge - x) < 0.03
        assert label.x == edge


@given(shares, st.floats(0.1, 0.9))
def test_a_name_alone_stands_at_its_mark_s_height_inside_the_panel(x: float, y: float) -> None:
    (label,) = place_labels([(x, y)], [0.2], HEIGHT)
    assert label.y == y
    assert label.box.left >= 0.0
    assert label.box.right <= 1.0


def test_two_names_that_would_meet_half_way_make_room() -> None:
    # A name to the right of the one, another to the left of the other: as "chainer" and "onnxruntime" once met.
    wide = 0.3
    one, other = place_labels([(0.4, 0.5), (0.75, 0.5)], [wide, wide], HEIGHT)
    assert not one.box.meets(other.box)


def test_boxes_that_only_touch_do_not_meet() -> None:
    assert not Box(0, 0, 1, 1).meets(Box(1, 0, 2, 1))
    assert not Box(0, 0, 1, 1).meets(Box(0, 1, 1, 2))
    assert Box(0, 0, 1, 1).meets(Box(0.9, 0.9, 2, 2))
