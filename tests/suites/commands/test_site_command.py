"""`dlbench report site` of many nights: what is on it, what a new night changes, and what it
refuses."""

import lzma
import re
from collections.abc import Iterator
from dataclasses import replace
from operator import itemgetter
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hostile import STORES, check_html, check_xml, hostile_store
from processes import refusal

from dlbench.reports.results.record import HISTORY_PAIRS, Record, Run
from dlbench.reports.results.storage.store import Store

OTHER = {"": "", "baseline": "candidate", "candidate": "baseline"}
FIRST, SLOWER = 11, 5


@pytest.fixture(scope="module")
def nights(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[dict[str, object], list[tuple[Run, list[Record]]]]:
    """12 real nights of a gate over two cells, their sides exchanged: the candidate is 11 % slower
    from `SLOWER` on."""
    path = tmp_path_factory.mktemp("kept") / "gated.sqlite"
    path.write_bytes(lzma.decompress((STORES / "gated-nights.sqlite.xz").read_bytes()))
    with Store.open(path) as store:
        results = []
        for run in store.runs()[4:]:
            # What a history is made of: the pairs of the first look.
            records = [
                record for record in store.records(run=run.id) if record.launch < HISTORY_PAIRS
            ]
            results.append((run, [replace(record, side=OTHER[record.side]) for record in records]))
        return store.machines(), results


@pytest.fixture
def store(tmp_path: Path, nights) -> Iterator[Store]:
    machines, runs = nights
    with Store.open(tmp_path / "dlbench.sqlite") as opened:
        for name, machine in machines.items():
            opened.add_machine(name, machine)
        opened.append_runs(runs[:FIRST])
        yield opened


@pytest.fixture(autouse=True)
def _no_pictures_of_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the plots on the pages of runs: drawing takes long, and `test_page.py` has them."""
    monkeypatch.setattr("dlbench.reports.page.sections.MOST_CELLS_DRAWN", 0)


def files(folder: Path) -> dict[str, tuple[int, int]]:
    results = {
        str(path.relative_to(folder)): path.stat() for path in folder.rglob("*") if path.is_file()
    }
    return {name: (stat.st_ino, stat.st_mtime_ns) for name, stat in results.items()}


def check_site(folder: Path) -> None:
    """Check that every page is inert and without requests, and that every link leads to a file."""
    check_xml((folder / "feed.xml").read_text(encoding="utf-8"))
    for page in folder.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        policy = re.search(r'Content-Security-Policy" content="([^"]+)"', text)
        assert policy is not None
        assert policy[1].startswith("default-src &#39;none&#39;; style-src &#39;sha256-")
        # Of a report of a run alone a script is allowed.
        assert ("script-src" in policy[1]) is ("<script>" in text) is (page.parent.name == "runs")
        links = set(re.findall(r'href="([^"#:]+)"', text))
        assert links, page
        for link in links:
            assert (page.parent / link).is_file(), (page, link)
        check_html(text, frozenset(links))


def test_a_new_night_rewrites_only_what_it_changes(tmp_path, command, store, nights):
    code, _, errors = command("report", "site")
    assert code == 0, errors
    folder = tmp_path / "site"
    check_site(folder)
    index = (folder / "index.html").read_text(encoding="utf-8")
    runs = [run for run, _ in nights[1]]
    for run in runs[:FIRST]:
        assert f'href="runs/{run.id}.html">{run.started:%Y-%m-%d %H:%M}</a>' in index
    (history,) = (folder / "history").iterdir()
    text = history.read_text(encoding="utf-8")
    assert all(part in text for part in (f"run {runs[SLOWER].id}", "% slower", "<svg"))
    entries = _entries(folder)
    assert [(title, when[:10]) for _, title, when in entries] == [
        (f"fcn5, mini-batch 64, null, {threads}: slower", f"{runs[SLOWER].started:%Y-%m-%d}")
        for threads in ("1 thread", "2 threads")
    ]
    before = files(folder)
    assert command("report", "site")[0] == 0
    assert files(folder) == before, "the same store writes nothing"

    store.append_runs(nights[1][FIRST:])
    code, _, errors = command("report", "site")
    assert code == 0, errors
    after = files(folder)
    changed = {name for name in after if after[name] != before.get(name)}
    new = f"runs/{runs[FIRST].id}.html"
    assert changed == {"index.html", "site.json", str(history.relative_to(folder)), new}
    assert _entries(folder) == entries, "what was published is not published again"
    check_site(folder)


def _entries(folder: Path) -> list[tuple[str, ...]]:
    atom = "{http://www.w3.org/2005/Atom}"
    entries = ElementTree.parse(folder / "feed.xml").getroot().iter(f"{atom}entry")
    results = [
        tuple(entry.findtext(atom + name, "") for name in ("id", "title", "updated"))
        for entry in entries
    ]
    return sorted(results, key=itemgetter(1))


def test_pages_of_runs_that_left_the_store_stay_and_lost_pages_come_back(tmp_path, command, nights):
    _, runs = nights
    for name, part in (("one", runs[:2]), ("two", runs[2:3])):
        with Store.open(tmp_path / f"{name}.sqlite") as opened:
            opened.append_runs(part)
        assert (
            command(
                "report", "site", "--store", f"{name}.sqlite", "--url", "https://example.org/n"
            )[0]
            == 0
        )
    folder = tmp_path / "site"
    assert len(list((folder / "runs").iterdir())) == 3
    assert len(re.findall(r'href="runs/', (folder / "index.html").read_text(encoding="utf-8"))) == 3
    assert 'href="https://example.org/n/feed.xml"' in (folder / "feed.xml").read_text(
        encoding="utf-8"
    )
    (folder / "runs" / f"{runs[2][0].id}.html").unlink()
    assert command("report", "site", "--store", "two.sqlite")[0] == 0
    check_site(folder)


def test_gates_that_fail_stand_in_the_feed_and_on_their_pages(tmp_path, command):
    (tmp_path / "gates.sqlite").write_bytes(
        lzma.decompress((STORES / "gates.sqlite.xz").read_bytes())
    )
    assert command("report", "site", "--store", "gates.sqlite", "--out", "gates")[0] == 0
    folder = tmp_path / "gates"
    assert [title for _, title, _ in _entries(folder)] == [
        f"{network}, 1 thread: {finding}"
        for network in ("fcn5, mini-batch 64, null", "lstm32, mini-batch 128, null")
        for finding in ("broken", "slower")
    ]
    assert "gate failed: 2 of 2 cells are slower" in (folder / "index.html").read_text(
        encoding="utf-8"
    )
    page = (folder / "runs" / "20261122T140656-32ed51.html").read_text(encoding="utf-8")
    assert '<section id="report-comparisons"' in page
    assert "gate failed: 2 of 2 cells are slower" in page
    check_site(folder)


def test_hostile_names_are_inert(tmp_path, command):
    code, _, errors = command("report", "site", "--store", str(hostile_store(tmp_path, "gates", 0)))
    assert code == 0, errors
    check_site(tmp_path / "site")


def test_folders_that_are_not_our_site_are_left_alone(tmp_path, command, store):
    for name in ("mine", "other"):
        (tmp_path / name).mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    (tmp_path / "file").write_text("x")
    (tmp_path / "other" / "site.json").write_text('{"dlbench_site": 99, "contents": {}}')
    Store.open(tmp_path / "empty.sqlite").close()
    before = files(tmp_path)
    for words, reason in (
        (
            ("--out", "mine"),
            (
                "mine holds files but is not a site of dlbench; name a new or an empty folder with "
                "--out."
            ),
        ),
        (("--out", "other"), "site.json is not from a site that this dlbench can read"),
        (("--out", "file"), "The site file cannot be written"),
        (("--store", "empty.sqlite"), "holds no measured run yet"),
        (("--url", "javascript:x"), "is not a site address"),
    ):
        assert reason in refusal(command, "report", "site", *words)
        assert files(tmp_path) == before
