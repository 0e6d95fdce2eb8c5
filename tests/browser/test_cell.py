"""A cell opens: its numbers, every launch, its software, and the command that measures it again."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from browser_pages import cell_of
from kept_stores import block
from playwright.sync_api import Locator, Page, expect

from dlbench.reports.formats.layout import number

pytestmark = pytest.mark.xdist_group("browser")
Show = Callable[..., Page]
WRITES = ["clipboard-read", "clipboard-write"]


def opened(page: Page, row: str, group: int = 0) -> Locator:
    page.locator("#matrix-live tbody").nth(group).get_by_role("row", name=re.compile(f"^{row} [★0-9]")).get_by_role(
        "button"
    ).first.click()
    dialog = page.locator("#cell")
    expect(dialog).to_be_visible()
    return dialog


@pytest.fixture
def data(example: Path) -> Any:
    return block(example.read_text(encoding="utf-8"))


def test_it_tells_what_its_number_rests_on(show: Show, example: Path, data: Any) -> None:
    cell = cell_of(data, row="torch eager", group="fcn5, mini-batch 64")
    dialog = opened(show(example), "torch eager")
    expect(dialog.locator("h2")).to_have_text("torch eager, 2 threads")
    expect(dialog.locator(".title")).to_contain_text("fcn5, mini-batch 64 · AMD EPYC, 2 CPUs")
    for value, low, high in cell["numbers"].values():
        line = dialog.get_by_role("group", name="Numbers").locator("tr", has_text=f"{number(low)} to {number(high)}")
        expect(line).to_contain_text(number(value))
    expect(dialog).to_contain_text(cell["method"])
    lines = dialog.get_by_role("group", name="Launches").locator("tbody tr")
    assert lines.count() == len(cell["launches"])
    for place, launch in enumerate(cell["launches"]):
        line = lines.nth(place)
        expect(line).to_contain_text(launch["started"].replace("T", " ")[:19])
        expect(line).to_contain_text(launch["parity"]["verdict"])
    software = data["software"][cell["launches"][0]["software"]]
    facts = dialog.locator(".facts").last
    for text in (software["version"], software["interpreter"], software["environment"]):
        expect(facts).to_contain_text(text)
    for name, value in software["variables"].items():
        expect(facts).to_contain_text(f"{name} = {value}")
    packages = dialog.locator("details:not([open]) summary", has_text="installed package")
    expect(packages).to_have_text(re.compile(r"\d+ installed packages?"))


def test_the_picture_has_every_step_of_every_launch(show: Show, example: Path, data: Any) -> None:
    cell = cell_of(data, row="torch eager", group="fcn5, mini-batch 64")
    dialog = opened(show(example), "torch eager")
    picture = dialog.locator("svg").first
    shown = sum(len(launch["samples_ns"]) for launch in cell["launches"] if launch["counts"])
    assert picture.locator(".counts").count() == shown
    expect(picture).to_contain_text(re.compile("time of a step, (s|ms)"))
    assert dialog.locator("svg").nth(1).locator(".counts").count() == len(cell["launches"])


def test_disturbed_launches_have_a_mark_of_their_own(show: Show, machines: Path) -> None:
    data = block(machines.read_text(encoding="utf-8"))
    cell = next(c for c in data["cells"] if any(launch["disturbed"] for launch in c["launches"]))
    page = show(machines)
    page.locator("#matrix-live tbody tr", has_text=cell["row"]).locator(f"td:nth-child({cell['column'] + 2}) button")
    page.evaluate(
        "title => [...document.querySelectorAll('#matrix-live button')].find(e => e.title.includes(title)).click()",
        "other programs",
    )
    assert page.locator("#cell svg .cross").count() > 0
    expect(page.locator("#cell .legend")).to_contain_text("~")


def test_a_cell_without_a_number_gives_its_reason(show: Show, machines: Path) -> None:
    data = block(machines.read_text(encoding="utf-8"))
    hole = next(cell for cell in data["cells"] if cell["word"])
    page = show(machines)
    page.locator("#matrix-live td.hole button").first.click()
    expect(page.locator("#cell .reason")).to_contain_text(hole["reason"])


def test_its_command_is_copied(show: Show, example: Path, data: Any) -> None:
    cell = cell_of(data, row="torch eager", group="fcn5, mini-batch 64")
    page = show(example, permissions=WRITES)
    dialog = opened(page, "torch eager")
    dialog.locator("#copy-again").click()
    expect(dialog.locator(".told")).to_have_text("Copied.")
    assert page.evaluate("navigator.clipboard.readText()") == cell["again"]


def test_without_a_clipboard_the_text_is_offered_selected(show: Show, example: Path, data: Any) -> None:
    cell = cell_of(data, row="torch eager", group="fcn5, mini-batch 64")
    page = show(example)
    page.evaluate("Object.defineProperty(navigator, 'clipboard', {value: undefined})")
    dialog = opened(page, "torch eager")
    dialog.locator("#copy-again").click()
    assert page.evaluate("String(getSelection()) || document.activeElement.value") == cell["again"]
    page.keyboard.press("Escape")
    expect(page.locator(".offered")).to_have_count(0)
    expect(dialog).to_be_visible()


def test_it_closes_by_escape_and_the_focus_returns(show: Show, example: Path) -> None:
    page = show(example)
    opened(page, "torch eager")
    key = page.evaluate("new URLSearchParams(location.hash.slice(2)).get('cell')")
    page.keyboard.press("Escape")
    expect(page.locator("#cell")).to_be_hidden()
    page.wait_for_url(lambda address: "cell=" not in address)
    assert page.evaluate("document.activeElement.dataset.cell") == key


def test_its_address_opens_it_again(show: Show, example: Path) -> None:
    page = show(example)
    opened(page, "torch eager")
    heading, fragment = page.locator("#cell h2").inner_text(), page.evaluate("location.hash")
    page.reload()
    expect(page.locator("#cell h2")).to_have_text(heading)
    page.go_back()
    expect(page.locator("#cell")).to_be_hidden()
    page.go_forward()
    expect(page.locator("#cell h2")).to_have_text(heading)
    other = show(example, fragment=fragment)
    expect(other.locator("#cell h2")).to_have_text(heading)


@pytest.mark.parametrize(
    "fragment", ["#?cell=x&quantity=y&reference=row:z&sort=7&only.machine=m&not.axis.mode=", "#?%"]
)
def test_an_address_of_another_page_does_no_harm(show: Show, example: Path, fragment: str) -> None:
    page = show(example, fragment=fragment)
    expect(page.locator("#matrix-live caption")).to_contain_text("Seconds per mini-batch")
