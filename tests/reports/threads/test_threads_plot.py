"""The picture of threads: what is drawn, and what is not."""

import factory_of_records as make
from pictures import texts
from records_of_threads import HOST, curves_of, records_of

from dlbench.reports.storage.hosts import Host
from dlbench.reports.threads.plot import drawn_curves, threads_to_picture


def test_a_panel_for_each_network_and_the_marks_are_explained(tmp_path):
    times = {1: 1.0, 2: 0.5, 4: 0.7}
    records = [*records_of(times), *records_of(times, framework="mxnet"), *records_of(times, network="fcn8")]
    curves = curves_of(records)
    (written,) = threads_to_picture(curves, tmp_path / "t.svg")
    said = set(texts(written))
    assert {"fcn5, mini-batch 64", "fcn8, mini-batch 64", "mxnet eager", "torch eager"} <= said
    assert {"threads to use", "T(1)/p of the fastest with one", f"the machine's own cores: {HOST.own_cores}"} <= said
    (again,) = threads_to_picture(curves, tmp_path / "again.svg")
    assert written.read_bytes() == again.read_bytes()


def test_one_count_is_no_line_and_a_machine_of_unknown_cores_has_none(tmp_path):
    assert drawn_curves(curves_of(records_of({2: 1.0}))) == []
    unknown = curves_of(records_of({2: 1.0, 4: 1.0}), Host(make.MACHINE, "unknown"))
    (written,) = threads_to_picture(unknown, tmp_path / "t.png")
    assert written.read_bytes().startswith(b"\x89PNG")


def test_many_networks_go_on_on_a_further_page(tmp_path):
    records = [r for n in range(14) for p in (1, 2) for r in make.launches(1.0 / p, threads=p, network=f"n{n}")]
    pages = threads_to_picture(curves_of(records), tmp_path / "t.svg")
    assert [page.name for page in pages] == ["t.svg", "t-2.svg"]
    assert [sum("mini-batch 64" in text for text in texts(page)) for page in pages] == [12, 2]
