"""A cell opens: its numbers, every launch and step, nights, software, and the command that measures
it again."""

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import factory_of_records as make
import numpy as np
import pytest
from kept_stores import block, cell_of
from playwright.sync_api import Locator, Page, expect

from dlbench.reports.results.number_text import number
from dlbench.reports.results.storage.store import Store

pytestmark = pytest.mark.xdist_group("browser")
Show = Callable[..., Page]
NIGHTS, SLOWER_FROM, SLOWER_BY = 16, 8, 1.2


def opened(page: Page, row: str = "torch eager") -> Locator:
    body = page.locator("#matrix-table tbody:visible").first
    body.get_by_role("row", name=re.compile(f"^{row} [★0-9]")).get_by_role("link").first.click()
    dialog = page.locator("#cell")
    expect(dialog).to_be_visible()
    return dialog


@pytest.fixture
def cell(example: Path) -> Any:
    return cell_of(example)


def test_the_dialog_shows_the_launches_behind_a_number(
    show: Show, example: Path, cell: Any
) -> None:
    data = block(example.read_text(encoding="utf-8"))
    dialog = opened(show(example))
    expect(dialog.locator("h2")).to_have_text("torch eager, 2 threads")
    expect(dialog.locator(".title")).to_contain_text("fcn5, mini-batch 64 · AMD EPYC, 2 CPUs")
    seconds = cell["seconds_per_minibatch"]
    line = dialog.get_by_role("group", name="Numbers").locator("tbody tr").first
    expect(line).to_contain_text(f"{number(seconds['low'])} to {number(seconds['high'])}")
    expect(dialog).to_contain_text(seconds["method"])
    lines = dialog.get_by_role("group", name="Launches").locator("tbody tr")
    assert lines.count() == len(cell["launches"])
    for place, launch in enumerate(cell["launches"]):
        expect(lines.nth(place)).to_contain_text(launch["started"].replace("T", " ")[:19])
        expect(lines.nth(place)).to_contain_text(launch["parity"]["verdict"])
    picture = dialog.locator("svg").first
    dots = picture.locator(".dots").evaluate_all(
        "all => all.map(e => e.getAttribute('d').split('M').length - 1)"
    )
    assert dots == [len(launch["samples_ns"]) for launch in cell["launches"]]
    software = data["software"][cell["launches"][0]["software"]]
    for text in (software["version"], software["interpreter"], software["environment"]):
        expect(dialog.locator(".facts").last).to_contain_text(text)
    for name, value in software["variables"].items():
        expect(dialog.locator(".facts").last).to_contain_text(f"{name} = {value}")


def test_a_cell_without_a_number_gives_its_reason(show: Show, machines: Path) -> None:
    data = block(machines.read_text(encoding="utf-8"))
    place, hole = next(
        (place, cell) for place, cell in enumerate(data["cells"]) if cell["status"] != "ok"
    )
    page = show(machines)
    expect(page.locator(f"td[data-cell='{place}']")).to_have_attribute(
        "title", re.compile(re.escape(hole["reason"]))
    )
    page.locator(f"td[data-cell='{place}'] a").click()
    expect(page.locator("#cell .reason")).to_contain_text(hole["reason"])


@pytest.mark.parametrize("may_write", [True, False])
def test_its_command_is_copied_or_selected(
    show: Show, example: Path, cell: Any, may_write: bool
) -> None:
    page = show(example, permissions=["clipboard-read", "clipboard-write"] if may_write else [])
    if not may_write:
        page.evaluate("Object.defineProperty(navigator, 'clipboard', {value: undefined})")
    dialog = opened(page)
    dialog.locator(".copy").click()
    expect(dialog.locator("output")).to_have_text(
        re.compile("^Copied" if may_write else "^Selected")
    )
    text = "navigator.clipboard.readText()" if may_write else "String(getSelection())"
    assert page.evaluate(text) == cell["rerun_command"]


def test_back_does_not_open_a_closed_cell_again(show: Show, example: Path) -> None:
    page = show(example)
    page.locator("#choose-view").select_option(label="Items per second")
    opened(page)
    page.keyboard.press("Escape")
    expect(page.locator("#cell")).to_be_hidden()
    page.wait_for_url(lambda address: "cell=" not in address and "view=" in address)
    assert page.evaluate("document.activeElement.closest('td').dataset.cell") is not None
    page.go_back()
    expect(page.locator("#cell")).to_be_hidden()
    expect(page.locator("#matrix-table caption")).to_have_text("Seconds per mini-batch")


def test_its_address_opens_it_again(show: Show, example: Path) -> None:
    page = show(example)
    opened(page)
    heading, fragment = page.locator("#cell h2").inner_text(), page.evaluate("location.hash")
    page.reload()
    expect(page.locator("#cell h2")).to_have_text(heading)
    page.go_back()
    expect(page.locator("#cell")).to_be_hidden()
    page.go_forward()
    expect(page.locator("#cell h2")).to_have_text(heading)
    expect(show(example, fragment=fragment).locator("#cell h2")).to_have_text(heading)


@pytest.mark.parametrize("fragment", ["#?cell=x&view=y&ascending=7&not.machine=m&not.mode=", "#?%"])
def test_an_address_of_another_page_does_no_harm(show: Show, example: Path, fragment: str) -> None:
    page = show(example, fragment=fragment)
    expect(page.locator("#matrix-table caption")).to_contain_text("Seconds per mini-batch")


def test_a_cell_has_its_nights_and_the_change(
    show: Show, page_of: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory
) -> None:
    store = tmp_path_factory.mktemp("nights") / "dlbench.sqlite"
    noise = np.random.default_rng(1)
    with Store.open(store) as filled:
        for night in range(NIGHTS):
            run = make.run(id=f"night-{night:02}", started=make.START + timedelta(days=night))
            level = SLOWER_BY if night >= SLOWER_FROM else 1.0
            records = make.launches(
                [level * float(np.exp(noise.normal(0, 0.005))) for _ in range(3)], threads=2
            )
            records += make.launches(2.0, threads=1) if night == NIGHTS - 1 else []
            filled.append_runs(
                [(run, [replace(record, run=run.id, started=run.started) for record in records])]
            )
    path = page_of("--store", str(store))
    histories = [
        cell["histories"]
        for cell in block(path.read_text(encoding="utf-8"))["cells"]
        if cell["histories"]
    ]
    ((history,),) = histories
    assert (history["kind"], len(history["nights"])) == ("absolute", NIGHTS)
    (change,) = history["changes"]
    assert change["place"] == SLOWER_FROM
    page = show(path)
    fields = page.locator("#matrix-table td a")
    fields.nth(1).click()
    dialog = page.locator("#cell")
    day = make.START + timedelta(days=SLOWER_FROM)
    words = rf"Since {day:%Y-%m-%d}: 1\.\d+× the time before \(1\.\d+ to 1\.\d+\)\."  # noqa: RUF001
    expect(dialog).to_contain_text(re.compile(words))
    assert dialog.locator("figure").nth(1).locator(".dots").count() == NIGHTS
    page.locator("#cell-close").click()
    fields.nth(0).click()
    expect(dialog).to_contain_text("1 thread")
    expect(dialog).not_to_contain_text("By night")
