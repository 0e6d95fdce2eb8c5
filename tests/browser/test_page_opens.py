"""A page opens from its file, alone, with and without JavaScript, on a screen and on paper."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

pytestmark = pytest.mark.xdist_group("browser")
Show = Callable[..., Page]


def test_it_opens_from_a_file_and_asks_for_nothing_else(show: Show, example: Path) -> None:
    asked: list[str] = []
    page = show(example)
    page.on("request", lambda request: asked.append(request.url))
    page.reload()
    page.wait_for_selector("#matrix-live:not([hidden])")
    assert asked == [example.as_uri()]
    expect(page.locator("#matrix-static")).to_be_hidden()
    assert page.locator("#matrix-live td button").count() == 30


@pytest.mark.parametrize("width", [390, 1280])
def test_no_page_is_wider_than_the_window(show: Show, example: Path, machines: Path, width: int) -> None:
    for path in (example, machines):
        page = show(path, viewport={"width": width, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") == width
        page.locator("#matrix-live td button").first.click()
        assert page.evaluate("document.getElementById('cell').scrollWidth <= innerWidth")


def test_without_javascript_the_tables_stand_there(show: Show, example: Path) -> None:
    page = show(example, java_script_enabled=False)
    expect(page.locator("#matrix-static")).to_be_visible()
    expect(page.locator("#matrix-static table")).to_contain_text("torch eager")
    for name in ("#matrix-controls", "#matrix-live", "#downloads", "#cell"):
        expect(page.locator(name)).to_be_hidden()


def test_a_browser_that_cannot_unpack_the_data_keeps_the_tables(show: Show, example: Path) -> None:
    page = show(example, before="delete window.DecompressionStream")
    expect(page.locator("#matrix-controls")).to_contain_text("cannot unpack the data")
    expect(page.locator("#matrix-static")).to_be_visible()
    expect(page.locator("#matrix-live")).to_be_hidden()


def test_on_paper_everything_is_open_and_nothing_can_be_pressed(show: Show, example: Path) -> None:
    page = show(example)
    page.evaluate("addEventListener('beforeprint', () => setTimeout(() => { window.printed = true }))")
    page.emulate_media(media="print")
    expect(page.locator("#matrix-live table")).to_be_visible()
    for name in ("nav", "#matrix-controls", "#downloads"):
        expect(page.locator(name)).to_be_hidden()
    assert page.pdf()[:5] == b"%PDF-"
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator("details:not([open])").count() == 0
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.locator("details:not([open])").count() > 0


def test_anchors_of_sections_keep_the_view(show: Show, example: Path) -> None:
    page = show(example)
    page.get_by_label("Swap rows and columns").check()
    page.get_by_role("link", name="Provenance").click()
    expect(page).to_have_url(re.compile("#provenance$"))
    expect(page.get_by_label("Swap rows and columns")).to_be_checked()
    page.go_back()
    expect(page).to_have_url(re.compile("transposed"))
    expect(page.get_by_label("Swap rows and columns")).to_be_checked()


def test_every_link_of_the_page_leads_to_its_place(show: Show, example: Path) -> None:
    page = show(example)
    for name in page.eval_on_selector_all("nav a", "links => links.map(link => link.hash)"):
        page.locator(f"nav a[href='{name}']").click()
        page.wait_for_function(
            """name => Math.abs(document.querySelector(name).getBoundingClientRect().top) < 60
                || document.documentElement.scrollHeight - innerHeight - scrollY < 2""",
            arg=name,
        )
