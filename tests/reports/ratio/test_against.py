"""One's own cells beside the paper's: every figure computed again from the paper's file and by
hand."""

import csv as csv_of_python
import math
from importlib import resources

import factory_of_records as make
import pytest
from exported import exporters
from hypothesis import given
from hypothesis import strategies as st
from properties import examples

from dlbench.adapters.protocol import BOUND, Status
from dlbench.hardware_probe import Ceilings
from dlbench.reports.builds import MeasuredBuilds
from dlbench.reports.ratio.against import Against, Match, PaperPair, against
from dlbench.reports.results.hosts import Host
from dlbench.reports.results.matrix import build_matrix
from dlbench.reports.results.published import SHI2016, Counterpart, study
from dlbench.reports.results.record import Record
from dlbench.reports.results.results import Results

FORMATS = exporters("against")
launches = make.launches
COUNTERPARTS = {
    "caffe": Counterpart("caffe", "Caffe"),
    "cntk": Counterpart("", "CNTK", "its interpreter is gone"),
    "tensorflow": Counterpart("tensorflow", "TensorFlow"),
    "torch": Counterpart("pytorch", "PyTorch"),
}
TENSORFLOW = {"framework": "tensorflow", "adapter": "tensorflow", "mode": "function"}
CEILINGS = {1: 100e9, 2: 190e9, 4: 360e9, 8: 700e9}
BATCH = {"fcn5": 64, "alexnet": 16, "lstm32": 128}


def found_in(
    *records: Record,
    cores: int | None = 8,
    ceilings: dict[int, float] | None = None,
    all_modes: bool = False,
) -> Against:
    measured = Ceilings(tuple(make.ceiling(p, rate) for p, rate in (ceilings or CEILINGS).items()))
    hosts = {
        r.machine: Host(r.machine, f"a machine of {cores}", cores, cores, 8.0) for r in records
    }
    results = Results(records, hosts, dict.fromkeys(hosts, measured))
    builds = MeasuredBuilds(records, {})
    return against(build_matrix(results), COUNTERPARTS, builds, all_modes)


DESKTOP, SERVER = (
    study(SHI2016).hosts[name].fingerprint for name in ("desktop_i7_3820", "server_2x_e5_2630v3")
)
# Multiply-adds of fcn5 for one example, by hand: 26752 -> 2048 -> 2048 -> 2048 -> 26752. A training
# step is forward, gradient by weights and gradient by inputs, the last not for the first layer; a
# multiply-add is two operations.
FIRST, MIDDLE, LAST = 26752 * 2048, 2 * 2048 * 2048, 2048 * 26752
FCN5_FLOP = 2 * 64 * (3 * (FIRST + MIDDLE + LAST) - FIRST)


def paper() -> dict[tuple[str, str, str, int], float]:
    """Return Table 4's CPU cells as its file has them, by network, framework, machine and
    threads."""
    text = (
        resources.files("dlbench.reports")
        .joinpath("data/shi2016_table4.csv")
        .read_text(encoding="utf-8")
    )
    return {
        (line["network"], line["framework"], line["platform"], int(line["threads"])): float(seconds)
        for line in csv_of_python.DictReader(text.splitlines())
        if line["threads"] and (seconds := line["seconds_per_minibatch"])
    }


def on(analysis: Against, machine: str) -> Match:
    (match,) = [match for match in analysis.matches if match.then.fingerprint == machine]
    return match


def only(match: Match) -> PaperPair:
    (pair,) = match.pairs
    return pair


def test_figures_by_hand() -> None:
    analysis = found_in(*launches(0.5, threads=2, **TENSORFLOW))
    for name, machine, cycle, low, high in (
        ("desktop_i7_3820", DESKTOP, 16, 3.6e9, 3.8e9),
        ("server_2x_e5_2630v3", SERVER, 32, 2.1e9, 3.2e9),
    ):
        published = paper()["fcn5", "tensorflow", name, 2]
        pair = only(on(analysis, machine))
        seconds = pair.now.seconds.median if pair.now and pair.now.seconds else math.nan
        assert seconds == pytest.approx(0.5, rel=1e-3)
        assert pair.speedup == pytest.approx(published / seconds)
        assert pair.share_now == pytest.approx(FCN5_FLOP / seconds / 190e9)
        assert pair.share_then[0] == pytest.approx(FCN5_FLOP / published / (2 * cycle * high))
        assert pair.share_then[1] == pytest.approx(FCN5_FLOP / published / (2 * cycle * low))
        assert pair.per_peak[0] == pytest.approx(
            (FCN5_FLOP / seconds / 190e9) / (FCN5_FLOP / published / (2 * cycle * low))
        )
        assert pair.per_peak[1] == pytest.approx(
            (FCN5_FLOP / seconds / 190e9) / (FCN5_FLOP / published / (2 * cycle * high))
        )
        assert on(analysis, machine).ceilings == {2: pytest.approx(190e9)}


def test_rows_compare_by_the_networks_that_all_of_them_have() -> None:
    wide, narrow = {"fcn5": 0.5, "alexnet": 0.4, "lstm32": 0.3}, {"fcn5": 0.9, "alexnet": 0.8}
    records = []
    caffe = {"framework": "caffe", "adapter": "caffe"}
    for times, build in ((wide, TENSORFLOW), (narrow, caffe)):
        for name, seconds in times.items():
            records += launches(seconds, network=name, batch_size=BATCH[name], **build)
    match = on(found_in(*records), DESKTOP)
    assert set(match.common[1]) == {"fcn5", "alexnet"}
    for mean in match.means:
        first, second = (
            p.speedup
            for p in match.pairs
            if p.row == mean.row and p.at.network in ("fcn5", "alexnet")
        )
        assert mean.common == pytest.approx(math.sqrt(first * second))
    caffe_mean, tensorflow_mean = sorted(match.means, key=lambda mean: mean.networks)
    assert caffe_mean.common == pytest.approx(caffe_mean.speedup)
    assert tensorflow_mean.networks == 3
    text = " ".join(FORMATS["terminal"](found_in(*records)).split())
    assert "the speed-up over fcn5, alexnet, which every row has" in text


def test_several_workers_are_not_compared_with_the_paper_s_one_process() -> None:
    of_one = [*launches(0.5, threads=1, **TENSORFLOW), *launches(0.3, threads=2, **TENSORFLOW)]
    of_two = launches(0.1, threads=4, world_size=2, **TENSORFLOW)
    alone, with_workers = (
        found_in(*of_one),
        found_in(*of_one, *of_two, *launches(0.1, threads=2, world_size=2, **TENSORFLOW)),
    )
    assert [match.pairs for match in with_workers.matches] == [
        match.pairs for match in alone.matches
    ]
    assert [match.left_out for match in with_workers.matches] == [
        match.left_out for match in alone.matches
    ]
    assert any("several workers" in note for note in with_workers.notes)
    assert not any("several workers" in note for note in alone.notes)
    of_gpu = found_in(*of_one, *launches(0.1, device="cuda:0", **TENSORFLOW))
    assert of_gpu.matches == alone.matches
    assert any("cells on GPUs" in note for note in of_gpu.notes)
    assert not any("cells on GPUs" in note for note in with_workers.notes)
    assert "several workers" in FORMATS["terminal"](found_in(*of_two))


STATUSES = [status for status in Status if status is not Status.PARITY_FAILED]


@examples(40)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(("tensorflow", "caffe", "pytorch", "mxnet")),
            st.sampled_from(tuple(BATCH)),
            st.sampled_from((1, 2, 3, 8, 64)),
            st.sampled_from(STATUSES),
        ),
        max_size=12,
    ),
    st.sampled_from((1, 2, 8, None)),
)
def test_each_pair_has_a_number_or_a_reason_and_cores_for_its_threads(
    cells: list[tuple[str, str, int, Status]], cores: int | None
) -> None:
    records = []
    for adapter, network, threads, status in dict.fromkeys(cells):
        if status is Status.OK:
            result = make.outcome(requested=threads)
        else:
            result = make.Outcome(status, "a reason")
        record = make.record(
            result=result,
            network=network,
            threads=threads,
            adapter=adapter,
            framework=adapter,
            batch_size=BATCH[network],
        )
        records.append(record)
    analysis = found_in(*records, cores=cores)
    for match in analysis.matches:
        for pair in match.pairs:
            assert (pair.speedup is None) is bool(pair.reason)
            assert pair.at.framework != "cntk"
            assert pair.at.threads <= min(cores or 64, match.then.physical_cores or 0)
            if pair.speedup is not None:
                assert pair.share_then[0] <= 1.0
        own = {record.cell.threads for record in records}
        compared = {pair.at.threads for pair in match.pairs}
        assert not compared & set(match.left_out)
        assert set(match.left_out) <= own
    assert max(map(len, FORMATS["terminal"](analysis).splitlines())) <= 80


def test_threads_beyond_the_cores_of_either_machine_are_left_out_and_said() -> None:
    records = [r for p in (1, 3, 4, 8, 16) for r in launches(0.5, threads=p, **TENSORFLOW)]
    analysis = found_in(*records, cores=8)
    assert [pair.at.threads for pair in on(analysis, DESKTOP).pairs] == [1, 4]
    assert [pair.at.threads for pair in on(analysis, SERVER).pairs] == [1, 4, 8]
    text = " ".join(FORMATS["terminal"](analysis).split())
    assert "Not compared: 3 threads, not in the table" in text
    assert "Not compared: 8 threads, more than the 4 cores there" in text
    assert "Not compared: 16 threads, more than the 8 cores here" in text


def test_the_fastest_mode_stands_for_a_row_unless_all_are_asked_for() -> None:
    records = [
        *launches(0.5),
        *launches(0.3, mode="compile"),
        *launches(0.1, mode="bound", affinity=BOUND),
    ]
    assert [p.now.row.mode for p in on(found_in(*records), DESKTOP).pairs if p.now] == ["compile"]
    all_modes = on(found_in(*records, all_modes=True), DESKTOP)
    assert [p.now.row.mode for p in all_modes.pairs if p.now] == ["compile", "eager"]
    (mean,) = all_modes.means
    assert mean.speedup == pytest.approx(max(p.speedup or 0 for p in all_modes.pairs))


def test_a_published_time_above_the_theoretical_peak_is_not_compared() -> None:
    # CNTK's lstm32 took 0.579 s on one core of the desktop: 2.5 times its peak for the network of
    # the specification.
    stands = {**COUNTERPARTS, "cntk": Counterpart("cntk", "CNTK")}
    records = launches(2.0, framework="cntk", adapter="cntk", network="lstm32", batch_size=128)
    match = on(against(make.matrix(*records), stands, MeasuredBuilds(records, {})), DESKTOP)
    pair = only(match)
    assert pair.share_then[0] > 2
    assert (pair.speedup, pair.per_peak, match.means) == (None, None, [])
    assert "above the theoretical peak" in pair.reason
