"""Texts of others, in every report and format: no name or reason commands a terminal, a spreadsheet
or a browser."""

import json
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import factory_of_records as make
import pytest
from hostile import CHECKS, HOSTILE, check_seen, check_svg, hostile_store, texts_of
from hypothesis import given
from hypothesis import strategies as st

from dlbench.adapters.protocol import Status
from dlbench.reports.catalogue import reports
from dlbench.reports.formats.export import FORMATS, export
from dlbench.reports.report import ReportOptions, ReportSource
from dlbench.reports.results.hosts import Host
from dlbench.reports.results.record import Record
from dlbench.reports.results.results import Results
from dlbench.reports.results.safe_text import FIELD, json_escaped, one_line, table_field, visible
from dlbench.reports.results.storage.store import Store

pytestmark = pytest.mark.usefixtures("few_replicates")
Command = Callable[..., tuple[Any, str, str]]
MADE = [report for report in reports().values() if report.of_stores]
DRAWN = {"cpu": ("figure1", "progress")}

texts = st.one_of(
    st.text(), st.sampled_from(HOSTILE), st.text(st.characters(categories=("C", "Z", "M")))
)


@given(texts, st.integers(10, 60))
def test_visible_text_is_one_printable_line(text: str, most: int) -> None:
    line = visible(text, most)
    assert line.isprintable()
    assert len(line) <= most
    assert visible(line, most) == line
    if text.isprintable() and len(text) <= most:
        assert line == text
    assert one_line(text, most) == " ".join(line.split())


def test_how_what_cannot_be_seen_is_shown() -> None:
    assert visible("\x1b[31m\x9b\u202e\ud800\U000e0041") == r"\x1b[31m\x9b\u202e\ud800\U000e0041"
    assert visible("a\r\nb\tc\u2028d\x85e") == "a  b c d e"
    assert visible("x" * 10_000, FIELD) == "x" * (FIELD - 3) + "..."
    assert one_line("  a \n b ") == "a b"


@given(
    st.recursive(texts, lambda inner: st.lists(inner) | st.dictionaries(texts, inner), max_leaves=5)
)
def test_json_is_the_same_but_for_what_has_no_place_in_it(content: Any) -> None:
    text = json_escaped(json.dumps(content, ensure_ascii=False, indent=1))
    check_seen(text)
    # Half a pair is none of the characters that there are; two halves beside one another are none
    # either.
    joined = "".join(texts_of(content)).encode("utf-8", "surrogatepass").decode("utf-8", "replace")
    if "\N{REPLACEMENT CHARACTER}" not in joined:
        assert json.loads(text) == content


def some_records() -> list[Record]:
    """Return records in which each of the texts is once a name, a reason and a version."""
    records = [make.hole(Status.SKIPPED, ""), make.record(machine="m-two")]
    for number, text in enumerate(HOSTILE):
        for name in ("framework", "mode", "network", "environment"):
            records.append(
                make.record(**{"framework": f"f{number}", name: text, "minutes": number})
            )
        records += [
            make.record(framework=text, threads=threads, batch_size=128) for threads in (1, 2, 4)
        ]
        records.append(make.hole(Status.CRASHED, text, framework=f"f{number}", threads=2))
        software = {
            "framework": text,
            "version": text,
            "versions": {text: text},
            "blas": text,
            text: text,
        }
        output = make.outcome(
            software=software, parity=make.parity("disagrees", text), status=Status.PARITY_FAILED
        )
        records.append(make.record(framework=f"f{number}", threads=4, result=output))
    return records


def of_many_machines() -> list[Record]:
    """Return records of as many machines as there are texts: columns of their own, so few rows."""
    return [
        make.record(machine=text, framework=framework, threads=threads)
        for text in HOSTILE
        for framework, threads in (("torch", 1), ("torch", 2), ("mxnet", 1))
    ]


@cache
def sources() -> list[ReportSource]:
    names = [make.MACHINE, "m-two", *HOSTILE]
    hosts = {text: Host(text, text, 2, 2, 2.0, ((text, text),)) for text in names}
    runs = [(make.run(id=text, suite=text, machine=text), 1) for text in HOSTILE]
    results = [
        Results(tuple(records), hosts, comparisons=HOSTILE, displaced=HOSTILE)
        for records in (some_records(), of_many_machines())
    ]
    return [ReportSource(lambda result=result: result, lambda: runs) for result in results]


@pytest.mark.parametrize("report", MADE, ids=lambda report: report.name)
def test_no_name_and_no_reason_does_anything(report: Any) -> None:
    for source in sources():
        content = report.analyse(source)
        for form in FORMATS:
            text = export(report, content, ReportOptions(), form)
            CHECKS[form](text)
            assert len(max(text.split("\n"), key=len)) < 50_000 or form in ("csv", "json")
            if report.name == "matrix" and form == "json":
                assert set(HOSTILE) <= set(
                    texts_of(json.loads(text))
                )  # JSON keeps every text as it was
            if report.name == "matrix" and form == "terminal":
                assert (
                    "[red]x[/red]" in text
                )  # what the terminal's library takes for markup is text


def source_of(path: Path) -> ReportSource:
    with Store.open(path, create=False) as store:
        runs = [(run, 1) for run in store.runs()]
    results = Results.read([path], newest=True)
    return ReportSource(lambda: results, lambda: runs)


@pytest.mark.parametrize(("name", "turn"), [("cpu", 0), ("gpu", 7)])
def test_somebody_elses_store_is_shown_and_does_nothing(
    tmp_path: Path, name: str, turn: int
) -> None:
    source = source_of(hostile_store(tmp_path, name, turn))
    for report in MADE:
        content = report.analyse(source)
        for form in FORMATS:
            CHECKS[form](export(report, content, ReportOptions(), form))
        if report.draw is not None and report.name in DRAWN.get(name, ()):
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                for drawn in report.draw(content, tmp_path / "drawn.svg", ReportOptions()):
                    check_svg(drawn)


def test_comparisons_histories_and_exports_of_somebody_elses_store(
    tmp_path: Path, command: Command
) -> None:
    gates, nights = hostile_store(tmp_path, "gates", 3), hostile_store(tmp_path, "gated-nights", 5)
    for form in (*FORMATS, "junit"):
        code, out, errors = command("compare", "latest", "--store", str(gates), "--format", form)
        assert (code, errors) == (0, "")
        CHECKS[form](out.removesuffix("\n"))
    for form in FORMATS:
        options = (*(["--plot", "drawn.svg"] if form == "json" else []), "--all", "--format", form)
        code, out, errors = command("history", "--store", str(nights), *options)
        assert code == 0
        check_seen(errors)
        CHECKS[form](out.removesuffix("\n"))
    check_svg(Path("drawn.svg"))
    code, out, errors = command("export", "--store", str(gates))
    CHECKS["json"](out)
    check_seen(errors)
    Path("exported.json").write_text(out)
    code, out, errors = command("import", "exported.json", "--store", "new.sqlite")
    assert "Traceback" not in errors
    check_seen(errors)
    for words in (
        ("report", "runs"),
        ("report", "matrix", "--run", "x\x1b"),
        ("history", "--network", "\x9b1m"),
    ):
        code, out, errors = command(*words, "--store", str(gates))
        check_seen(out + errors)


def test_an_overlong_field_keeps_its_parameters():
    names = [f"tests/test_a.py::test_it[{'x' * 300}-{number}]" for number in (1, 2)]
    first, second = map(table_field, names)
    assert len(first) == FIELD
    assert first.startswith("tests/test_a.py::test_it[")
    assert (first.endswith("x-1]"), second.endswith("x-2]")) == (True, True)
    assert table_field("short\x1b") == "short\\x1b"
