"""Progress from framework to framework in every format and as a picture."""

import re
from pathlib import Path

import pytest
from pictures import texts
from records_of_progress import FORMATS, NEW, OLD, busy, launches, progress_of

from dlbench.reports.progress.plot import progress_to_picture


def test_a_table_too_wide_is_shown_in_two_parts_that_both_say_framework_and_threads() -> None:
    name = "a-build-with-a-very-long-name-indeed"
    text = FORMATS["terminal"](progress_of([*OLD, *launches(1.0, name, "1.0", threads=2)]))
    heads = [line.split() for line in text.splitlines() if line.split()[:1] == ["p"] and "threads;" not in line]
    assert heads == [["p", "version", "released"], ["p", "s/batch", "speed-up", "ceil"]]
    assert len(re.findall(rf"^  {name} m +2 ", text, re.MULTILINE)) == 2


def test_without_anything_measured_it_says_so() -> None:
    for name in ("terminal", "markdown", "latex"):
        assert "Nothing was measured yet" in FORMATS[name](progress_of([]))


def test_the_picture_names_networks_frameworks_and_what_is_left_out(tmp_path: Path) -> None:
    (written,) = progress_to_picture(busy(), tmp_path / "progress.svg")
    said = texts(written)
    assert "fcn5, mini-batch 64" in said
    assert "lstm32, mini-batch 128" in said
    for name in ("caffe 1.0.0", "mxnet 1.9.1", "torch 2.13.0", "torch-nightly 2.14.0.dev"):
        assert name in said
    assert any("without a known date: mine 0.1_a&b" in text for text in said)
    assert "1 thread" in said
    (again,) = progress_to_picture(busy(), tmp_path / "again.svg")
    assert written.read_bytes() == again.read_bytes()


def test_each_machine_has_a_page_of_its_own_and_an_empty_store_a_blank_one(tmp_path: Path) -> None:
    found = progress_of([*OLD, *NEW, *launches(1.0, machine="m-two")])
    pages = progress_to_picture(found, tmp_path / "p.png")
    assert [page.name for page in pages] == ["p.png", "p-2.png"]
    assert all(page.read_bytes().startswith(b"\x89PNG") for page in pages)
    assert any(
        "nothing with a release date" in text
        for text in texts(progress_to_picture(progress_of([]), tmp_path / "e.svg")[0])
    )


@pytest.mark.parametrize("factor", [1.0, 1.001, 3.0, 1e4])
def test_a_picture_of_any_range_is_drawn(tmp_path: Path, factor: float) -> None:
    records = [*launches(1.0), *launches(1.0 / factor, "torch", "2.13.0"), *launches([0.5], "mxnet", "1.9.1")]
    (written,) = progress_to_picture(progress_of(records), tmp_path / "p.svg")
    numbers = [
        text for text in texts(written) if re.fullmatch(r"[\d.e+-]+", text) and not re.fullmatch(r"20\d\d", text)
    ]
    assert "1" in numbers
    assert 2 <= len(numbers) <= 12
