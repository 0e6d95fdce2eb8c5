"""Texts of anybody on a page: they run nothing, turn nothing around, and stand there as texts."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import factory_of_records as make
import pytest
from hostile import HOSTILE
from playwright.sync_api import Page, expect

from dlbench.adapters.protocol import Status
from dlbench.reports.results.storage.store import Store

pytestmark = pytest.mark.xdist_group("browser")
Show = Callable[..., Page]
SCRIPTS = (
    "<script>window.ran = 1; alert(1)</script>",
    "</script><script>window.ran = 1</script>",
    '"onerror="window.ran = 1"><img src=x onerror="window.ran = 1">',
    "<svg onload=window.ran=1>",
    "\u2028window.ran = 1\u2029",
    "\u202egnp.exe\u2066",
    "long" * 2500,
    "javascript:window.ran=1",
)
TEXTS = (*SCRIPTS, *HOSTILE[::3])


@pytest.fixture(scope="module")
def hostile(page_of: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hostile")
    with Store.open(folder / "store.sqlite") as store:
        for place, text in enumerate(TEXTS):
            outcome = make.outcome()._replace(
                software={text: text, "version": text, "variables": {text: text}}
            )
            odd: dict[str, Any] = {
                "framework": f"f{place}{text[:300]}",
                "mode": text,
                "network": f"n{place % 2}{TEXTS[place % 2]}",
            }
            store.append(make.record(result=outcome, environment=text[:300], **odd))
            store.append(make.hole(Status.CRASHED, text, threads=2, **odd))
    note = folder / "note.md"
    note.write_text("\n\n".join(SCRIPTS), encoding="utf-8")
    title = SCRIPTS[1] + HOSTILE[0].replace("\x1b", "")
    return Path(
        page_of("--store", str(folder / "store.sqlite"), "--note", str(note), "--title", title)
    )


def test_nothing_runs_and_everything_is_text(show: Show, hostile: Path) -> None:
    page = show(hostile)
    fields = page.locator("#matrix-table td a")
    count = fields.count()
    assert count == 2 * len(TEXTS)
    for place in (*range(0, 2 * len(SCRIPTS), 2), count - 1):
        fields.nth(place).click()
        expect(page.locator("#cell")).to_be_visible()
        page.keyboard.press("Escape")
    page.locator("#choose-view").select_option(
        index=page.locator("#choose-view option").count() - 1
    )
    page.locator("#filters > summary").click()
    page.locator("#matrix-table td.hole a").first.click()
    page.reload()
    expect(page.locator("#cell")).to_be_visible()
    assert page.evaluate("window.ran") is None
    assert page.locator(":is(main, dialog) :is(script, img, iframe, object)").count() == 0
    assert "<script>window.ran = 1; alert(1)</script>" in page.locator("#matrix-table").inner_text()
    unseen = page.evaluate(
        "/[\\u202a-\\u202e\\u2066-\\u2069\\u2028\\u2029\\u200b-\\u200f\\x1b]/.test(document.body.innerText)"
    )
    assert not unseen
    assert page.evaluate("document.documentElement.scrollWidth") == 1280
