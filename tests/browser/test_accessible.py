"""By keyboard alone, and for whoever does not see the page: axe finds nothing, in light and dark, narrow and wide."""

import re
from collections.abc import Callable
from importlib import resources
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

pytestmark = pytest.mark.xdist_group("browser")
Show = Callable[..., Page]
AXE = resources.files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_violation(show: Show, small: Path, scheme: str, width: int) -> None:
    # Axe is a script of its own, which the page's policy would forbid: only here may it run.
    page = show(small, bypass_csp=True, color_scheme=scheme, viewport={"width": width, "height": 900})
    page.evaluate(AXE)
    page.locator("#filters > summary").click()
    assert violations(page, "") == []
    page.locator("#matrix-live td:not(.hole) button").first.click()
    assert violations(page, "#cell") == []


def test_axe_finds_no_violation_where_there_are_plots(show: Show, example: Path) -> None:
    page = show(example, bypass_csp=True)
    page.evaluate(AXE)
    assert violations(page, "") == []


def violations(page: Page, where: str) -> list[str]:
    script = """async where => {
        const found = await axe.run(where ? {include: where.split(", ")} : document, {resultTypes: ["violations"]});
        return found.violations.flatMap(each => each.nodes.map(node => `${each.id}: ${node.html.slice(0, 200)}`));
    }"""
    return list(page.evaluate(script, where))


def test_tab_reaches_every_control(show: Show, example: Path) -> None:
    page = show(example)
    page.locator("#filters > summary").click()
    page.locator(".skip").focus()
    wanted = page.evaluate(
        """() => [...document.querySelectorAll(
                "#matrix-controls :is(button, select, input, summary), #matrix-live button")]
            .filter(each => !each.disabled).map((each, place) => (each.dataset.place = place))"""
    )
    reached: list[int] = []
    for _ in range(len(wanted) + 40):
        page.keyboard.press("Tab")
        place = page.evaluate("document.activeElement.dataset.place")
        if place is not None:
            reached.append(int(place))
            if len(reached) == len(wanted):
                break
    assert reached == wanted


def test_the_first_tab_leads_past_the_links_to_the_matrix(show: Show, example: Path) -> None:
    page = show(example)
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Go to the matrix")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("#matrix$"))


def test_a_cell_opens_and_its_command_is_reached_by_keyboard(show: Show, example: Path) -> None:
    page = show(example)
    page.locator("#matrix-live td button").first.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    third = page.locator("#matrix-live td button").nth(2)
    expect(third).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#cell")).to_be_visible()
    for _ in range(15):
        if page.evaluate("document.activeElement.id") == "copy-again":
            break
        page.keyboard.press("Tab")
    expect(page.locator("#copy-again")).to_be_focused()
    page.keyboard.press("Escape")
    expect(third).to_be_focused()
