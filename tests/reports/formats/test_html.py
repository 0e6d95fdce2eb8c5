"""HTML of reports: what a browser's parser reads is what the report says."""

from html.parser import HTMLParser

from hostile_texts import HOSTILE
from hypothesis import given
from hypothesis import strategies as st

from dlbench.reports.formats.html import page_to_html
from dlbench.reports.formats.inert import FIELD, one_line
from dlbench.reports.formats.layout import Entry, Page, Table

texts = st.one_of(st.text(min_size=1), st.sampled_from(HOSTILE))


class _Cells(HTMLParser):
    """Collects the texts of cells, of the simplest kind of parser there is."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[list[str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_data(self, data: str) -> None:
        if self.rows and self.rows[-1]:
            self.rows[-1][-1] += data


@given(st.lists(st.tuples(texts, texts), min_size=1, max_size=4))
def test_a_table_has_the_texts_of_its_entries(rows: list[tuple[str, str]]) -> None:
    table = Table("", ("what", "how much"), tuple(tuple(map(Entry, row)) for row in rows))
    parser = _Cells()
    parser.feed(str(page_to_html(Page((), (table,)))))
    parser.close()
    shown = [[one_line(text, FIELD) for text in row] for row in rows]
    assert parser.rows == [["what", "how much"], *shown]


def test_heads_groups_and_spans_are_said_to_a_screen_reader() -> None:
    rows = ((Entry("fcn5"),), (Entry("torch"), Entry("0.5", "±2%", "~", best=True), Entry("oom", hole=True)))
    table = Table("Seconds", ("threads", "1", "2"), rows, ("a note",), spans=(("A machine", 2),))
    html = str(page_to_html(Page(("before",), (table,), ("after",))))
    assert '<th scope="colgroup" colspan="2">A machine</th>' in html
    assert '<th scope="rowgroup" colspan="3">fcn5</th>' in html
    assert '<th scope="row">torch</th>' in html
    assert '★</span> 0.5<span class="spread">±2%</span>~' in html
    assert html.index("before") < html.index("<table") < html.index("a note") < html.index("after")
