"""A cell has its nights, where its store has several: one point each, and the night from which it is slower."""

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import factory_of_records as make
import numpy as np
import pytest
from kept_stores import block
from playwright.sync_api import Page, expect

from dlbench.reports.storage.store import Store

pytestmark = pytest.mark.xdist_group("browser")
NIGHTS, SLOWER_FROM, SLOWER_BY = 16, 8, 1.2


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a store of nights of two threads, and a single night of one thread; the launches vary by 0.5 %."""
    path = tmp_path_factory.mktemp("nights") / "dlbench.sqlite"
    noise = np.random.default_rng(1)
    with Store.open(path) as opened:
        for night in range(NIGHTS):
            run = make.run(id=f"night-{night:02}", started=make.START + timedelta(days=night))
            level = SLOWER_BY if night >= SLOWER_FROM else 1.0
            records = make.launches([level * float(np.exp(noise.normal(0, 0.005))) for _ in range(3)], threads=2)
            records += make.launches(2.0, threads=1) if night == NIGHTS - 1 else []
            opened.append_runs([(run, [replace(each, run=run.id, started=run.started) for each in records])])
    return path


def test_a_cell_has_its_nights_and_the_change(
    show: Callable[..., Page], page_of: Callable[..., Path], store: Path
) -> None:
    path = page_of("--store", str(store))
    (history,) = next(
        each["histories"] for each in block(path.read_text(encoding="utf-8"))["cells"] if each["histories"]
    )
    assert (history["kind"], len(history["nights"])) == ("absolute", NIGHTS)
    (change,) = history["changes"]
    assert change["place"] == SLOWER_FROM
    assert change["numbers"][1] < SLOWER_BY < change["numbers"][2]
    page = show(path)
    fields = page.locator("#matrix-live td button")
    fields.nth(1).click()
    dialog = page.locator("#cell")
    day = make.START + timedelta(days=SLOWER_FROM)
    expect(dialog).to_contain_text(re.compile(rf"From {day:%Y-%m-%d} on 1\.\d+× the time \(1\.\d+ to 1\.\d+\)\."))  # noqa: RUF001
    assert dialog.get_by_role("group", name="By night").locator("circle").count() == NIGHTS
    dialog.get_by_text(f"{NIGHTS} nights", exact=True).click()
    assert dialog.get_by_role("group", name="Nights").locator("tbody tr").count() == NIGHTS
    page.locator("#cell-close").click()
    fields.nth(0).click()
    expect(dialog).to_contain_text("1 thread")
    expect(dialog).not_to_contain_text("By night")
