"""Views, filters and order of the matrix; the address keeps them."""

import re
from collections.abc import Callable
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest
from kept_stores import EXAMPLE, block, cell_of
from playwright.sync_api import Page, expect

from dlbench.adapters import axes
from dlbench.reports.results.matrix import build_matrix
from dlbench.reports.results.naming import row_name
from dlbench.reports.results.number_text import number
from dlbench.reports.results.results import Results
from dlbench.reports.results.statistics import mean_of_pairs, ratio

pytestmark = pytest.mark.xdist_group("browser")
Show = Callable[..., Page]


def data_of(path: Path) -> Any:
    return block(path.read_text(encoding="utf-8"))


def rows(page: Page) -> list[str]:
    return page.locator("#matrix-table tbody th[scope=row]:visible").all_inner_texts()


def texts(page: Page, where: str = "td[data-cell] a") -> list[str]:
    return [
        text.strip() for text in page.locator(f"#matrix-table {where}:visible").all_inner_texts()
    ]


def field(page: Page, row: str, group: int = 0, column: int = 0) -> Any:
    body = page.locator("#matrix-table tbody:not(#means)").nth(group)
    return (
        body.get_by_role("row", name=re.compile(f"^{re.escape(row)} [★0-9≈-]"))
        .locator("td")
        .nth(column)
    )


def test_every_axis_that_differs_has_a_filter(show: Show, machines: Path) -> None:
    data = data_of(machines)
    page = show(machines)
    several = [
        axis.name.replace("_", " ")
        for axis in axes.AXES
        if len({str(cell[axis.name]) for cell in data["cells"]}) > 1 and not axis.goes_with
    ]
    page.locator("#filters > summary").click()
    legends = page.locator("#filters legend").evaluate_all(
        "all => all.map(e => e.firstChild.textContent.trim())"
    )
    assert legends == ["machine", *several, "launches"]
    seconds = [cell["seconds_per_minibatch"] for cell in data["cells"]]
    few = sum(duration is not None and not duration["covers_launches"] for duration in seconds)
    page.get_by_label("3 or more").uncheck()
    assert len(texts(page)) == few > 0


def test_filters_narrow_and_the_address_restores_them(show: Show, example: Path) -> None:
    page = show(example)
    page.locator("#filters > summary").click()
    page.get_by_label("fcn5", exact=True).uncheck()
    assert "fcn5" not in page.locator("#matrix-table").inner_text()
    expect(page.locator("#filters > summary")).to_have_text("Filters · network 1 of 2")
    page.get_by_role("button", name="Hide every framework").click()
    expect(page.locator("#none-shown")).to_be_visible()
    page.get_by_label("mxnet", exact=True).check()
    assert {name.split()[0] for name in rows(page)} == {"mxnet"}
    before = texts(page)
    page.reload()
    page.wait_for_selector("#matrix-controls:not([hidden])")
    assert texts(page) == before
    # A copied address opens at the matrix.
    assert (
        page.evaluate("Math.abs(document.getElementById('matrix').getBoundingClientRect().top)")
        < 60
    )
    for _ in range(3):
        page.go_back()
    assert len(texts(page)) == 30
    page.go_forward()
    page.go_forward()
    expect(page.locator("#none-shown")).to_be_visible()
    page.locator("#reset").click()
    assert len(texts(page)) == 30
    expect(page).to_have_url(re.compile("^[^#]*$"))


def test_a_column_sorts_the_rows_of_each_group(show: Show, example: Path) -> None:
    page = show(example)
    unsorted = rows(page)
    head = page.locator("#matrix-table th[aria-sort]")
    for direction in ("ascending", "descending"):
        head.get_by_role("button").click()
        expect(head).to_have_attribute("aria-sort", direction)
        for body in page.locator("#matrix-table tbody:visible").all():
            group = [
                float(re.sub(r"[^0-9.].*", "", text))
                for text in body.locator("td a > span:not([class])").all_inner_texts()
            ]
            assert group == sorted(group, reverse=direction == "descending")
    page.reload()
    expect(head).to_have_attribute("aria-sort", "descending")
    head.get_by_role("button").click()
    assert rows(page) == unsorted


def test_another_quantity_shows_its_numbers(show: Show, example: Path) -> None:
    cell = cell_of(example)
    seconds = [cell["seconds_per_minibatch"][name] for name in ("median", "low", "high")]
    items = [cell["batch_size"] / duration for duration in (seconds[0], seconds[2], seconds[1])]
    page = show(example)
    for title, (value, low, high) in {
        "Items per second": items,
        "Seconds per mini-batch": seconds,
    }.items():
        page.locator("#choose-view").select_option(label=title)
        entry = field(page, "torch eager")
        expect(entry).to_contain_text(number(value))
        expect(entry).to_have_attribute("title", re.compile(f"^{number(low)} to {number(high)}"))
        expect(page.locator("#matrix-table caption")).to_have_text(title)


def test_ratios_and_their_means_are_those_of_the_reports(show: Show, example: Path) -> None:
    """One function gives each interval: the page's script computes none."""
    matrix = build_matrix(Results.read([EXAMPLE], newest=True))
    page = show(example)
    page.locator("#choose-view").select_option(label="Compared with torch eager")
    expect(page.locator("#matrix-table caption")).to_contain_text("as a multiple of torch eager")
    (column,) = matrix.columns
    pairs: dict[str, list[Any]] = {}
    for group_place, (group, names) in enumerate(matrix.rows.items()):
        (reference,) = [row for row in names if row_name(row) == "torch eager"]
        reference_cell = matrix.at(group, reference, column)
        for row in names:
            cell = matrix.at(group, row, column)
            seconds = cell and cell.seconds
            if (
                cell is reference_cell
                or seconds is None
                or reference_cell is None
                or reference_cell.seconds is None
            ):
                continue
            result = ratio(seconds, reference_cell.seconds)
            assert result.low is not None
            assert result.high is not None
            entry = field(page, row_name(row), group_place)
            text = f"{number(result.value)}×{number(result.low)} to {number(result.high)}"  # noqa: RUF001
            expect(entry).to_contain_text(text)
            pairs.setdefault(row_name(row), []).append((seconds, reference_cell.seconds))
    means = page.locator("#means")
    expect(means).to_be_visible()
    for name, timed_pairs in pairs.items():
        mean = mean_of_pairs(timed_pairs)
        line = means.get_by_role("row", name=re.compile(f"^{re.escape(name)} [0-9≈]"))
        expect(line).to_contain_text(f"{number(mean.value)}×")  # noqa: RUF001
    page.locator("#filters > summary").click()
    page.get_by_label("fcn5", exact=True).uncheck()
    expect(means).to_be_hidden()


def test_arrows_go_through_the_cells_and_tab_leaves_them(show: Show, example: Path) -> None:
    page = show(example)
    links = page.locator("#matrix-table td a")
    page.locator("#matrix-table .sort").focus()
    page.keyboard.press("Tab")
    expect(links.first).to_be_focused()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    expect(links.nth(2)).to_be_focused()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.closest('#matrix-table')") is None
    page.keyboard.press("Shift+Tab")
    expect(links.nth(2)).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#cell")).to_be_visible()
    page.keyboard.press("Escape")
    expect(links.nth(2)).to_be_focused()


def test_ratios_to_a_machine_compare_the_same_cell(show: Show, machines: Path) -> None:
    data = data_of(machines)
    page = show(machines)
    page.locator("#choose-view optgroup[label='compared with a machine'] option").nth(1).evaluate(
        "e => { e.selected = true; e.dispatchEvent(new Event('change', { bubbles: true })) }"
    )
    first, second = list(dict.fromkeys(cell["machine"] for cell in data["cells"]))[:2]
    values_of = itemgetter(*axes.NAMES)
    seconds_at = {}
    for cell in data["cells"]:
        seconds_at[cell["machine"], values_of(cell)] = cell["seconds_per_minibatch"]
    compared = []
    for place, cell in enumerate(data["cells"]):
        numerator = cell["seconds_per_minibatch"]
        denominator = seconds_at.get((second, values_of(cell)))
        if cell["machine"] == first and numerator and denominator:
            compared.append((place, numerator, denominator))
    assert compared
    for place, numerator, denominator in compared:
        entry = page.locator(f"td[data-cell='{place}']")
        expect(entry).to_contain_text(f"{number(numerator['median'] / denominator['median'])}×")  # noqa: RUF001
