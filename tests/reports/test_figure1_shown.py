"""Figure 1 in every format and as a picture."""

import json as json_of_python
import re
from pathlib import Path

import factory_of_records as make
import pytest
from pictures import texts
from records_of_figure1 import FORMATS, busy, figure_of, holes, records_of

from dlbench.adapters.protocol import Status
from dlbench.reports.figure1.plot import figure1_to_picture
from dlbench.reports.storage.record import Record


def test_without_anything_measured_it_says_so() -> None:
    for name in ("terminal", "markdown", "latex"):
        assert "Nothing was measured yet" in FORMATS[name](figure_of([]))
    assert json_of_python.loads(FORMATS["json"](figure_of([])))["panels"] == []


@pytest.mark.parametrize("quantity", ["seconds", "items"])
@pytest.mark.slow
def test_the_picture_names_networks_rows_places_and_where_memory_ended(tmp_path: Path, quantity: str) -> None:
    (written,) = figure1_to_picture(busy(), tmp_path / "figure1.svg", quantity)
    said = texts(written)
    for word in ("fcn5", "resnet50", "lstm32", "torch eager", "jax jit", "cpu, 1 thread, float32", "cuda:0, bfloat16"):
        assert word in said
    assert "out of memory from 256" in said
    assert any("knee" in text for text in said)
    assert any({"seconds": "seconds per", "items": "items per"}[quantity] in text for text in said)
    assert {"16", "64", "512"} <= set(said)
    (again,) = figure1_to_picture(busy(), tmp_path / "again.svg", quantity)
    assert written.read_bytes() == again.read_bytes()


@pytest.mark.parametrize(
    "records",
    [
        [],
        records_of({64: 1.0}),
        records_of({64: [1.0]}),
        records_of({16: 1.0, 32: 1.0}),
        holes({16: Status.CRASHED, 32: Status.OUT_OF_MEMORY}),
        records_of({size: 1e-4 * size for size in range(1, 40)}),
    ],
    ids=["nothing", "one size", "one launch", "flat", "holes", "many sizes"],
)
def test_any_figure_is_drawn(tmp_path: Path, records: list[Record]) -> None:
    (written,) = figure1_to_picture(figure_of(records), tmp_path / "f.png")
    assert written.read_bytes().startswith(b"\x89PNG")


def test_more_places_than_kinds_of_line_have_pages_of_their_own(tmp_path: Path) -> None:
    records = [r for n in range(8) for r in records_of({16: 1.0, 32: 1.5}, device=f"cuda:{n}")]
    pages = figure1_to_picture(figure_of(records), tmp_path / "f.svg")
    assert [page.name for page in pages] == ["f.svg", "f-2.svg"]
    assert "cuda:5" in texts(pages[0])
    assert "cuda:6" in texts(pages[1])


def test_single_sizes_at_several_places_have_marks_of_their_own_and_bars_say_what_they_cover(tmp_path: Path) -> None:
    records = [r for threads in (1, 2, 4) for r in records_of({64: [1.0 / threads]}, threads=threads)]
    (path,) = figure1_to_picture(figure_of(records), tmp_path / "places.svg")
    text = path.read_text(encoding="utf-8")
    # In the legend and in the panel each place has a mark of another form.
    marks = set(re.findall(r'xlink:href="#(m[0-9a-f]+)"', text))
    (alike,) = figure1_to_picture(figure_of(records_of({64: [1.0]})), tmp_path / "one.svg")
    assert len(marks) >= len(set(re.findall(r'xlink:href="#(m[0-9a-f]+)"', alike.read_text(encoding="utf-8")))) + 2
    assert "bars: 94 % interval" in text


@pytest.mark.parametrize(
    ("records", "said"),
    [
        (records_of({64: 1.0, 128: 1.0}), "bars: 95 % interval"),
        # The extremes of three steps cover their median with 1 - 2 / 2**3.
        ([make.record([1.0, 1.1, 0.9]), *records_of({128: 1.0})], "bars: 75 to 95 % interval"),
    ],
    ids=["alike", "a mixture"],
)
def test_the_caption_says_what_the_bars_cover(tmp_path: Path, records: list[Record], said: str) -> None:
    (written,) = figure1_to_picture(figure_of(records), tmp_path / "covered.svg")
    assert said in written.read_text(encoding="utf-8")
