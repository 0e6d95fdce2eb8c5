"""What a reader can do with the matrix: filter, compare, turn, sort; the address keeps it."""

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from browser_pages import cell_of
from kept_stores import block
from playwright.sync_api import Page, expect

from dlbench.adapters import axes
from dlbench.reports.formats.layout import number
from dlbench.reports.statistics import LAUNCH_DEVIATION, Ratio, geometric_mean

pytestmark = pytest.mark.xdist_group("browser")
Show = Callable[..., Page]
REFERENCE = '#choose-reference optgroup:first-child option:has-text("{}")'


def fields(page: Page, where: str = "#matrix-live") -> list[str]:
    """The numbers with their intervals, and the words, without the marks behind them."""
    script = """tables => tables.flatMap(table => [...table.querySelectorAll("td")].map(td => {
        const copy = td.cloneNode(true);
        copy.querySelectorAll(".marks, .mark, .star").forEach(each => each.remove());
        return copy.textContent.trim();
    }))"""
    return list(page.locator(f"{where} table:has(tr.group)").evaluate_all(script))


def rows(page: Page) -> list[str]:
    return page.locator("#matrix-live tbody th[scope=row]").all_inner_texts()


def compare_with(page: Page, row: str) -> None:
    page.locator("#choose-reference").select_option(label=row)


def test_it_shows_what_the_static_matrix_shows(show: Show, example: Path, machines: Path) -> None:
    for path in (example, machines):
        page = show(path)
        static = [text.replace("-", "–").rstrip("?~'<>^udhc") for text in fields(page, "#matrix-static")]  # noqa: RUF001
        live = fields(page)
        assert [text for text in live if text] == [text for text in static if text]


def test_every_axis_that_differs_has_a_filter(show: Show, machines: Path) -> None:
    data = block(machines.read_text(encoding="utf-8"))
    page = show(machines)
    place = {axis.name: number for number, axis in enumerate(axes.AXES)}
    several = [n for n, at in place.items() if len({str(cell["at"][at]) for cell in data["cells"]}) > 1]
    wanted = ["machine", *(name.replace("_", " ") for name in several if not axes.AXES[place[name]].goes_with)]
    page.locator("#filters > summary").click()
    assert page.locator("#filters legend").evaluate_all("all => all.map(e => e.firstChild.textContent)") == wanted


def test_filters_narrow_and_the_address_restores_them(show: Show, example: Path) -> None:
    page = show(example)
    page.locator("#filters > summary").click()
    page.get_by_label("fcn5", exact=True).uncheck()
    assert "fcn5" not in page.locator("#matrix-live table").inner_text()
    expect(page.locator("#filters > summary")).to_have_text("Filters: network 1 of 2")
    page.get_by_role("button", name="Hide every framework").click()
    expect(page.locator("#matrix-live")).to_contain_text("No cell passes the filters.")
    page.get_by_label("mxnet", exact=True).check()
    assert {name.split()[0] for name in rows(page)} == {"mxnet"}
    before = fields(page)
    page.reload()
    page.wait_for_selector("#matrix-live:not([hidden])")
    assert fields(page) == before
    for _ in range(3):
        page.go_back()
    assert len(fields(page)) == 30
    page.go_forward()
    page.go_forward()
    expect(page.locator("#matrix-live")).to_contain_text("No cell passes the filters.")
    page.locator("#reset").click()
    assert len(fields(page)) == 30
    expect(page).to_have_url(re.compile("^[^#]*$"))


def test_turned_the_frameworks_stand_across(show: Show, machines: Path) -> None:
    page = show(machines)
    numbers = sorted(text for text in fields(page) if text not in ("", "–"))  # noqa: RUF001
    page.get_by_label("Swap rows and columns").check()
    assert sorted(text for text in fields(page) if text not in ("", "–")) == numbers  # noqa: RUF001
    assert "torch eager" in page.locator("#matrix-live thead").inner_text()
    assert any("2 threads" in row for row in rows(page))


def test_a_column_sorts_the_rows_of_each_group(show: Show, example: Path) -> None:
    page = show(example)
    usual = rows(page)
    page.locator("#matrix-live th button").click()
    head = page.locator("#matrix-live th[aria-sort]")
    expect(head).to_have_attribute("aria-sort", "ascending")
    assert page.evaluate("document.activeElement.dataset.sort") == "0"
    for group in groups_of_numbers(page):
        assert group == sorted(group)
    head.get_by_role("button").click()
    expect(head).to_have_attribute("aria-sort", "descending")
    for group in groups_of_numbers(page):
        assert group == sorted(group, reverse=True)
    page.reload()
    expect(head).to_have_attribute("aria-sort", "descending")
    head.get_by_role("button").click()
    assert rows(page) == usual


def groups_of_numbers(page: Page) -> list[list[float]]:
    script = """bodies => bodies.map(body => [...body.querySelectorAll("td button")].map(each =>
        Number([...each.childNodes].find(node => node.nodeType === 3 && node.textContent.trim()).textContent)))"""
    return list(page.locator("#matrix-live tbody").evaluate_all(script))


def test_another_quantity_shows_its_numbers(show: Show, example: Path) -> None:
    cell = cell_of(block(example.read_text(encoding="utf-8")), row="torch eager", group="fcn5, mini-batch 64")
    page = show(example)
    for name, (value, low, high) in cell["numbers"].items():
        page.locator("#choose-quantity").select_option(name)
        field = page.locator("#matrix-live tr", has_text="torch eager").filter(has_not_text="installed").first
        expect(field.locator("button")).to_contain_text(number(value))
        expect(field.locator("button")).to_have_attribute("title", starts(f"{number(low)} to {number(high)}"))


def starts(text: str) -> Any:
    import re

    return re.compile("^" + re.escape(text))


def mover(one: Any, other: Any, covered: bool) -> tuple[float, float, float]:
    (a, la, ua), (b, lb, ub) = (map(math.log, numbers) for numbers in (one, other))
    wider = 0.0 if covered else 1.959964 * math.sqrt(2) * LAUNCH_DEVIATION
    low, high = a - b - math.hypot(a - la, ub - b) - wider, a - b + math.hypot(ua - a, b - lb) + wider
    return math.exp(a - b), math.exp(low), math.exp(high)


def test_ratios_to_a_row_have_the_interval_of_both(show: Show, example: Path, machines: Path) -> None:
    for path, reference in ((example, "torch eager"), (machines, "onnx graph")):
        data = block(path.read_text(encoding="utf-8"))
        page = show(path)
        compare_with(page, reference)
        assert f"as a multiple of {reference}" in page.locator("#matrix-live caption").inner_text()
        checked = 0
        for cell in data["cells"]:
            others = [c for c in data["cells"] if same(c, cell, "group", "column") and c["row"] == reference]
            if cell["row"] == reference or cell["word"] or not others or others[0]["word"]:
                continue
            both = cell["covers_launches"] and others[0]["covers_launches"]
            value, low, high = mover(cell["numbers"]["seconds"], others[0]["numbers"]["seconds"], both)
            button = page.locator(f"button[data-cell={quoted(data, cell)}]")
            expect(button).to_contain_text(f"{number(value)}×")  # noqa: RUF001
            expect(button).to_have_attribute("title", starts(f"{number(low)} to {number(high)}"))
            checked += 1
            if checked == 12:
                break
        assert checked == 12


def same(one: Any, other: Any, *names: str) -> bool:
    return all(one[name] == other[name] for name in names)


def quoted(data: Any, cell: Any) -> str:
    import json

    key = json.dumps([data["machines"][cell["machine"]]["fingerprint"], *cell["at"]], separators=(",", ":"))
    return json.dumps(key)


def test_ratios_to_a_machine_compare_the_same_cell(show: Show, machines: Path) -> None:
    data = block(machines.read_text(encoding="utf-8"))
    page = show(machines)
    page.locator("#choose-reference").select_option(f"machine:{data['machines'][1]['fingerprint']}")
    pairs = [
        (cell, other)
        for cell in data["cells"]
        for other in data["cells"]
        if (cell["machine"], other["machine"]) == (0, 1) and cell["at"] == other["at"]
    ]
    assert pairs
    for cell, other in pairs[:5]:
        value = cell["numbers"]["seconds"][0] / other["numbers"]["seconds"][0]
        expect(page.locator(f"button[data-cell={quoted(data, cell)}]")).to_contain_text(f"{number(value)}×")  # noqa: RUF001


def test_the_geometric_mean_is_that_of_the_groups_shown(show: Show, example: Path) -> None:
    data = block(example.read_text(encoding="utf-8"))
    page = show(example)
    assert page.locator("td.mean").count() == 0
    compare_with(page, "torch eager")
    wanted = means_over("torch eager", data["cells"])
    told = [("1", "the reference itself") if (w.value, w.low) == (1, 1) else (times(w), ends(w)) for w in wanted]
    assert means_shown(page) == told
    assert ("1", "the reference itself") in told
    # Noise hides what it may explain of a mean, and takes no ratio away from another.
    page.get_by_label("Hide what noise may explain").check()
    hidden = [text for text, _ in means_shown(page)]
    assert [text == "≈" for text in hidden] == [may_be_noise(each) for each in wanted]
    assert [interval for _, interval in means_shown(page)] == [interval for _, interval in told]
    # One network is no mean of several.
    page.locator("#filters > summary").click()
    page.get_by_label("fcn5", exact=True).uncheck()
    assert page.locator("td.mean").count() == 0


def means_shown(page: Page) -> list[tuple[str, str]]:
    script = "all => all.map(e => [e.firstChild.textContent.split(' ')[0], e.title.split(';')[0]])"
    return [(text, told) for text, told in page.locator("td.mean").evaluate_all(script)]


def means_over(reference: str, cells: list[Any]) -> list[Ratio]:
    """By row, then by column, as Python has them."""
    found: dict[tuple[str, int], list[Ratio]] = {}
    for cell in cells:
        others = [c for c in cells if same(c, cell, "group", "column") and c["row"] == reference and not c["word"]]
        if others and not cell["word"]:
            both = cell["covers_launches"] and others[0]["covers_launches"]
            mine, theirs = cell["numbers"]["seconds"], others[0]["numbers"]["seconds"]
            times = (1.0, 1.0, 1.0) if cell["row"] == reference else mover(mine, theirs, both)
            found.setdefault((cell["row"], cell["column"]), []).append(Ratio(*times, ""))
    rows = list(dict.fromkeys(row for row, _ in found))  # in the order of the matrix
    return [geometric_mean(found[key]) for key in sorted(found, key=lambda key: (rows.index(key[0]), key[1]))]


def may_be_noise(found: Ratio) -> bool:
    assert found.low is not None
    assert found.high is not None
    return found.low != found.high and (found.low <= 1 <= found.high or 1 / 1.02 <= found.value <= 1.02)


def times(found: Ratio) -> str:
    return f"{number(found.value)}×"  # noqa: RUF001


def ends(found: Ratio) -> str:
    assert found.low is not None
    assert found.high is not None
    return f"{number(found.low)} to {number(found.high)}"


def test_what_noise_may_explain_can_be_hidden(show: Show, example: Path) -> None:
    page = show(example)
    expect(page.get_by_label("Hide what noise may explain")).to_be_disabled()
    compare_with(page, "torch eager")
    page.get_by_label("Hide what noise may explain").check()
    texts = fields(page)
    assert "≈" in texts
    script = "all => all.filter(e => e.textContent.includes('×')).map(e => e.title.split(';')[0])"  # noqa: RUF001
    for ends in page.locator("#matrix-live td:not(.reference) button").evaluate_all(script):
        low, high = map(float, ends.split(" to "))
        assert low > 1 or high < 1, ends


def test_cells_of_few_launches_can_be_hidden(show: Show, machines: Path) -> None:
    data = block(machines.read_text(encoding="utf-8"))
    page = show(machines)
    page.get_by_label("Hide cells of fewer than 3 launches").check()
    few = sum(not cell["word"] and not cell["covers_launches"] for cell in data["cells"])
    assert fields(page).count("·") == few > 0


def test_words_in_place_of_numbers_have_their_reasons(show: Show, machines: Path) -> None:
    data = block(machines.read_text(encoding="utf-8"))
    page = show(machines)
    hole = next(cell for cell in data["cells"] if cell["word"])
    expect(page.locator(f"button[data-cell={quoted(data, hole)}]")).to_have_attribute("title", hole["reason"])
    page.locator(".holes > summary").click()
    expect(page.locator(".holes")).to_contain_text(hole["reason"])
