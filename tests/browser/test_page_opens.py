"""A page opens from its file, alone, with and without JavaScript, on a screen and on paper; axe
finds nothing."""

import csv
import io
import json
import re
from collections.abc import Callable
from importlib import resources
from pathlib import Path

import pytest
from hostile import check_csv, check_markdown
from kept_stores import block, saved
from playwright.sync_api import Page, expect

pytestmark = pytest.mark.xdist_group("browser")
Show = Callable[..., Page]
AXE = resources.files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")


@pytest.mark.parametrize("width", [390, 1280])
def test_no_page_is_wider_than_the_window(
    show: Show, example: Path, machines: Path, width: int
) -> None:
    for path in (example, machines):
        page = show(path, viewport={"width": width, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") == width
        heights = "all => all.map(each => each.getBoundingClientRect().height)"
        assert min(page.locator("svg text").evaluate_all(heights)) >= 8
        page.locator("#matrix-table td a").first.click()
        assert page.evaluate("document.getElementById('cell').scrollWidth <= innerWidth")


def test_without_javascript_the_tables_stand_there(show: Show, example: Path) -> None:
    page = show(example, java_script_enabled=False)
    expect(page.locator("#matrix-table")).to_contain_text("torch eager")
    for name in ("#matrix-controls", "#downloads", "#cell"):
        expect(page.locator(name)).to_be_hidden()


def test_a_browser_that_cannot_unpack_the_data_keeps_the_tables(show: Show, example: Path) -> None:
    page = show(example, before="delete window.DecompressionStream")
    expect(page.locator("#matrix-controls")).to_contain_text("cannot unpack the data")
    expect(page.locator("#matrix-table")).to_be_visible()


def test_on_paper_everything_is_open_and_nothing_can_be_pressed(show: Show, example: Path) -> None:
    page = show(example)
    page.emulate_media(media="print")
    expect(page.locator("#matrix-table")).to_be_visible()
    for name in ("nav", "#matrix-controls", "#downloads"):
        expect(page.locator(name)).to_be_hidden()
    assert page.pdf()[:5] == b"%PDF-"
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator("details:not([open])").count() == 0
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.locator("details:not([open])").count() > 0


def test_every_link_leads_to_its_place_and_keeps_the_view(show: Show, example: Path) -> None:
    page = show(example)
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Go to the matrix")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("#matrix$"))
    page.locator("#choose-view").select_option(label="GFLOP/s")
    for name in page.eval_on_selector_all("nav a", "links => links.map(link => link.hash)"):
        page.locator(f"nav a[href='{name}']").click()
        page.wait_for_function(
            """name => Math.abs(document.querySelector(name).getBoundingClientRect().top) < 60
                || document.documentElement.scrollHeight - innerHeight - scrollY < 2""",
            arg=name,
        )
    expect(page.locator("#matrix-table caption")).to_have_text("GFLOP/s")


def test_data_and_tables_can_be_saved(show: Show, example: Path) -> None:
    page, text = show(example), example.read_text(encoding="utf-8")
    data = block(text)
    assert json.loads(saved(page, "data.json")) == data
    assert json.loads(saved(page, "provenance.json")) == block(text, "provenance-data")
    check_markdown(saved(page, "matrix.md"))
    assert r"\begin{tabular}" in saved(page, "matrix.tex")
    cells = saved(page, "cells.csv")
    check_csv(cells)
    lines = list(csv.DictReader(io.StringIO(cells), strict=True))
    medians = [cell["seconds_per_minibatch"]["median"] for cell in data["cells"]]
    assert [float(line["seconds_per_minibatch.median"]) for line in lines] == medians


@pytest.mark.parametrize(("name", "width"), [("small", 390), ("example", 1280)])
def test_axe_finds_no_violation(
    show: Show, request: pytest.FixtureRequest, name: str, width: int
) -> None:
    # Axe is a script of its own, which the page's policy would forbid: only here may it run.
    path = request.getfixturevalue(name)
    page = show(
        path, bypass_csp=True, color_scheme="light", viewport={"width": width, "height": 900}
    )
    page.evaluate(AXE)
    page.locator("#filters > summary").click()
    for where in ("", "#cell"):
        if where:
            page.locator("#matrix-table td:not(.hole) a").first.click()
        assert violations(page, where) == []
        if (
            name == "small"
        ):  # nothing else depends on the scheme, and every page has the same colours
            page.emulate_media(color_scheme="dark")
            assert violations(page, where, "color-contrast") == []
            page.emulate_media(color_scheme="light")


def violations(page: Page, where: str, *rules: str) -> list[str]:
    script = """async ([where, rules]) => {
        const options = {resultTypes: ["violations"], ...(rules.length && {runOnly: {type: "rule", values: rules}})};
        const found = await axe.run(where ? {include: where.split(", ")} : document, options);
        return found.violations.flatMap(each => each.nodes.map(node => `${each.id}: ${node.html.slice(0, 200)}`));
    }"""
    return list(page.evaluate(script, [where, list(rules)]))


def test_the_first_screen_has_the_picture_and_the_ranking(show: Show, example: Path) -> None:
    page = show(example)
    page.set_viewport_size({"width": 1280, "height": 900})
    assert (
        page.evaluate("document.querySelector('#overview table').getBoundingClientRect().top") < 900
    )
    assert page.locator("#overview svg").count() == page.locator("#overview tbody tr").count() == 2
    label = page.locator("#overview svg").first.get_attribute("aria-label") or ""
    winner = page.locator("#overview tbody tr").first.locator("td").first.inner_text()
    assert f"tied: {winner} " in label
