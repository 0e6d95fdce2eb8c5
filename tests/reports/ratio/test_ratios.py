"""The fastest row, framework against framework and machine against machine, of records whose truth
is known."""

import math
from dataclasses import replace

import factory_of_records as make
import numpy as np
import pytest
from exported import texts
from hypothesis import given
from hypothesis import strategies as st

from dlbench.adapters.protocol import INSTALLED
from dlbench.reports.ratio import fastest, frameworks, machines
from dlbench.reports.ratio.pairs import pair_of, with_verdicts
from dlbench.reports.report import ReportOptions, ReportSource
from dlbench.reports.results import leaders
from dlbench.reports.results.hosts import Host
from dlbench.reports.results.matrix import build_matrix
from dlbench.reports.results.results import Results
from dlbench.reports.results.statistics import RatioVerdict, clearly_slower

KIND = Host("one", "alpha", 2, 2, 2.0, cpu_model="EPYC", memory_gib=8)
TWIN = replace(KIND, fingerprint="two", name="beta")
NAMES = ("torch", "mxnet", "jax", "caffe")
NETWORKS = ("fcn5", "fcn8", "lstm32")
SECONDS = st.floats(0.1, 10.0)


def matrix_of(records, hosts=None):
    default_hosts = {make.MACHINE: Host(make.MACHINE, "two cores", 2, 2, 2.0)}
    return build_matrix(Results(tuple(records), hosts or default_hosts))


def row(framework, times, **of_cell):
    """Return launches of these seconds, by network."""
    return [
        r
        for name, t in times.items()
        for r in make.launches(t, network=name, framework=framework, **of_cell)
    ]


def two_machines(first, second):
    records = [*row("torch", first, machine="one"), *row("torch", second, machine="two")]
    return machines.machines(matrix_of(records, {"one": KIND, "two": TWIN}))


def pairs_of(analysis):
    ((_, _, pairs),) = analysis.rows
    return pairs


def leader_of(records):
    (leader,) = leaders.fastest(matrix_of(records)).rows
    return leader


def mxnet(seconds, **changes):
    return make.launches(seconds, framework="mxnet", **changes)


def in_groups(cells, levels, deviation=0.001, seed=0):
    """Return launches that took turns: a group a block, on a machine as slow as its level says.

    ``cells`` has the seconds of a step by framework.
    """
    chance = np.random.default_rng(seed)
    records = []
    for launch, level in enumerate(levels):
        for framework, seconds in cells.items():
            steps = seconds * level * np.exp(chance.normal(0, deviation, 8))
            outcome = make.outcome(steps, turns=[1] * 8)
            record = make.record(launch=launch, framework=framework, result=outcome)
            records.append(replace(record, group=f"g{launch}"))
    return records


def test_of_launches_in_turns_the_ratios_are_known_though_the_seconds_are_not():
    levels = [1.0, 1.5, 0.8, 1.3, 1.0, 0.7]
    records = in_groups({"torch": 0.020, "mxnet": 0.021, "jax": 0.040}, levels)
    matrix = matrix_of(records)
    leader = leader_of(records)
    assert (leader.first.row.framework, leader.next.row.framework, leader.outcome) == (
        "torch",
        "mxnet",
        leaders.CLEAR,
    )
    assert leader.ratio.low > 1.04
    assert leader.ratio.high < 1.06
    assert [cell.row.framework for cell in matrix.cells.values() if cell.best] == ["torch"]
    torch, mxnet = (
        cell.timed for cell in matrix.cells.values() if cell.row.framework in ("torch", "mxnet")
    )
    assert max(torch.high / torch.low, mxnet.high / mxnet.low) > 1.5
    # What is shown agrees: the quotient of the seconds is the ratio.
    assert leader.next.timed.median / leader.first.timed.median == pytest.approx(
        leader.ratio.value, rel=1e-6
    )
    # Run sequentially, the same launches decide nothing.
    alone = leader_of([replace(record, group="") for record in records])
    assert alone.outcome == leaders.UNDECIDED


def test_leads_say_who_is_fastest_who_may_be_and_by_how_much_the_next_is_behind():
    records = in_groups({"torch": 0.0200, "mxnet": 0.02002, "jax": 0.030}, [1.0, 1.5, 0.8])
    (line,) = leaders.leads(leaders.fastest(matrix_of(records)))
    assert line.startswith("fcn5, mini-batch 64, 1 thread: torch eager or mxnet eager (1.00x ")
    assert "; then jax eager (1.50x 1.50-1.50)" in line
    assert leaders.leads(leaders.fastest(matrix_of(make.launches(1.0)))) == []


LEADERS = {
    "clear": ([*make.launches(1.0), *mxnet(2.0)], [], "mxnet", leaders.CLEAR),
    "of another run": ([*make.launches(1.0), *mxnet(2.0, run="b")], [], "mxnet", leaders.UNDECIDED),
    "undecided": (
        [*make.launches(1.0), *mxnet(1.005), *make.launches(2.0, framework="jax")],
        ["mxnet"],
        "jax",
        leaders.UNDECIDED,
    ),
    "a tie": (
        [
            *make.launches(1.0, 0.002),
            *mxnet(1.005, spread=0.002),
            *make.launches(2.0, framework="jax"),
        ],
        ["mxnet"],
        "jax",
        leaders.TIE,
    ),
    "a tie, and a third that may be faster": (
        [
            *make.launches(1.0, 0.002),
            *mxnet(1.005, spread=0.002),
            *make.launches(1.05, 0.1, framework="jax"),
        ],
        ["mxnet", "jax"],
        "mxnet",
        leaders.UNDECIDED,
    ),
    "faster beyond noise, but by less than 2 %": (
        [*make.launches(1.0, 0.001), *mxnet(1.01, spread=0.001)],
        ["mxnet"],
        "mxnet",
        leaders.TIE,
    ),
    "a tie of two runs": (
        [*make.launches(1.0, 0.002), *mxnet(1.005, spread=0.002, run="b")],
        ["mxnet"],
        "mxnet",
        leaders.UNDECIDED,
    ),
    "alone": (make.launches(1.0), [], None, leaders.UNKNOWN),
    "its own tuning is no rival": (
        [*make.launches(1.0), *make.launches(1.001, tuning=INSTALLED), *mxnet(2.0)],
        [],
        "mxnet",
        leaders.CLEAR,
    ),
}


@pytest.mark.parametrize(("records", "ties", "following", "outcome"), LEADERS.values(), ids=LEADERS)
def test_leaders(records, ties, following, outcome):
    leader = leader_of(records)
    assert leader.first.row.framework == "torch"
    assert [tie.row.framework for tie in leader.ties] == ties
    assert (leader.next.row.framework if leader.next else None, leader.outcome) == (
        following,
        outcome,
    )
    headline = " ".join(fastest.REPORT.headline(leaders.fastest(matrix_of(records))))
    assert (headline == "") == (following is None)
    words_of_outcome = {
        leaders.CLEAR: "clearly the fastest",
        leaders.TIE: "a tie",
        leaders.UNDECIDED: "undecided",
    }
    assert [name for name, words in words_of_outcome.items() if words in headline] == [outcome] * (
        following is not None
    )
    assert leader.launches is None or outcome == leaders.UNDECIDED


def test_wrong_mathematics_and_more_threads_than_asked_never_lead():
    wrong = make.outcome([0.1] * 3, parity=make.parity("disagrees", "no"))
    greedy = make.outcome([0.1] * 3, threads=make.threads(1, 0.3, cpu_per_wall=2.0, says=2))
    records = [
        *make.launches(1.0),
        make.record(framework="a", result=wrong),
        make.record(framework="b", result=greedy),
    ]
    assert leader_of(records).first.row.framework == "torch"


@given(
    st.lists(st.floats(0.5, 2.0), min_size=2, max_size=4),
    st.integers(0, 5),
    st.floats(0.001, 1000.0),
)
def test_leaders_agree_with_the_stars_and_a_change_of_scale_changes_no_ratio(factors, seed, scale):
    noise = np.random.default_rng(seed).normal(0, 0.05, (len(factors), 3))

    def made(by):
        times = [
            [by * factor * math.exp(noise) for noise in row]
            for factor, row in zip(factors, noise, strict=True)
        ]
        return [
            r
            for name, t in zip(NAMES, times, strict=False)
            for r in make.launches(t, framework=name)
        ]

    leader = leader_of(made(1.0))
    stars = {cell.row for cell in matrix_of(made(1.0)).cells.values() if cell.best}
    assert {leader.first.row, *(tie.row for tie in leader.ties)} == stars
    assert all(not clearly_slower(tie.seconds, leader.first.seconds) for tie in leader.ties)
    # Samples are whole nanoseconds.
    assert leader_of(made(scale)).ratio.value == pytest.approx(leader.ratio.value, rel=1e-5)


def standing(records, framework):
    (means,) = frameworks.frameworks(matrix_of(records)).rows
    mean = next(mean for mean in means if mean.pairs[0].cell.row.framework == framework)
    return mean.pairs[0].other.row.framework, mean


@given(st.lists(SECONDS, min_size=3, max_size=3), st.floats(0.2, 5.0))
def test_a_row_slower_by_one_factor_everywhere_has_that_mean(times, factor):
    base = dict(zip(NETWORKS, times, strict=True))
    slower = row("mxnet", {name: t * factor for name, t in base.items()})
    reference, mxnet = standing(
        [*row("torch", base, threads=2), *row("torch", base), *slower], "mxnet"
    )
    assert reference == "torch"  # the most cells
    assert mxnet.ratio.value == pytest.approx(factor, rel=1e-4)
    _, same = standing([*row("torch", base), *row("a", base)], "a")
    assert (same.count(RatioVerdict.FASTER), same.count(RatioVerdict.SLOWER)) == (0, 0)


def test_only_networks_of_both_count_and_rows_with_fewer_stand_apart():
    records = [
        *row("torch", {"fcn5": 1.0, "fcn8": 1.0, "lstm32": 1.0}),
        *row("jax", {"fcn5": 2.0, "fcn8": 2.0, "lstm32": 2.0}),
        *row("mxnet", {"fcn5": 0.5, "fcn8": 2.0}),
        *row("caffe", {"alexnet": 1.0}),
    ]
    reference, mxnet = standing(records, "mxnet")
    assert reference == "torch"  # as many times as jax, and faster
    assert [group.network for group in mxnet.works] == ["fcn5", "fcn8"]
    assert mxnet.ratio.value == pytest.approx(1.0)
    assert (mxnet.count(RatioVerdict.FASTER), mxnet.count(RatioVerdict.SLOWER)) == (1, 1)
    page = frameworks.REPORT.page(frameworks.frameworks(matrix_of(records)), ReportOptions())
    names = [line[0].text for line in page.tables[0].rows if len(line) > 1]
    assert names == ["torch eager", "jax eager", "mxnet eager"]
    assert page.tables[0].rows[-1][1].marks == " (2)"
    assert page.tables[0].notes == ("Nothing in common with the reference: caffe eager.",)


def test_a_headline_of_frameworks_only_where_noise_does_not_explain_it():
    slow = frameworks.frameworks(
        matrix_of([*row("a", {"fcn5": 2.0, "fcn8": 2.0}), *row("b", {"fcn5": 1.0, "fcn8": 1.0})])
    )
    (line,) = frameworks.REPORT.headline(slow)
    assert "b eager is the fastest; a eager takes 2.00x" in line
    assert "geometric mean of 2 networks" in line
    alike = frameworks.frameworks(matrix_of([*row("a", {"fcn5": 1.001}), *row("b", {"fcn5": 1.0})]))
    assert frameworks.REPORT.headline(alike) == []


@given(st.lists(st.tuples(SECONDS, SECONDS), min_size=3, max_size=3))
def test_swapping_machines_inverts_the_ratio(times):
    times_of_first, times_of_second = zip(*times, strict=True)
    first = dict(zip(NETWORKS, times_of_first, strict=True))
    second = dict(zip(NETWORKS, times_of_second, strict=True))
    pairs, swapped_pairs = (
        pairs_of(two_machines(first, second)),
        pairs_of(two_machines(second, first)),
    )
    for pair, swapped in zip(pairs, swapped_pairs, strict=True):
        assert pair.ratio.value * swapped.ratio.value == pytest.approx(1.0, rel=1e-4)
        assert pair.ratio.low * swapped.ratio.high == pytest.approx(1.0, rel=1e-4)
        assert {
            RatioVerdict.SLOWER: RatioVerdict.FASTER,
            RatioVerdict.FASTER: RatioVerdict.SLOWER,
        }.get(pair.verdict, pair.verdict) == swapped.verdict


@pytest.mark.parametrize(
    ("seconds", "verdict"),
    [
        (2.0, RatioVerdict.SLOWER),
        (0.5, RatioVerdict.FASTER),
        ([1.0, 1.0001, 1.0002], RatioVerdict.SAME),
        ([0.9, 1.0, 1.12], RatioVerdict.INCONCLUSIVE),
    ],
    ids=str,
)
def test_machines_of_one_kind_have_a_verdict(seconds, verdict):
    analysis = two_machines({"fcn5": [1.0, 1.0001, 1.0002]}, {"fcn5": seconds})
    (machine,) = machines.REPORT.as_data(analysis)["machines"]
    assert [row["verdict"] for row in (*machine["cells"], *machine["rows"])] == [verdict, verdict]
    assert [line["verdict"] for line in machines.REPORT.as_rows(analysis).lines] == [verdict]


def test_cells_of_one_machine_only_are_left_out_and_another_build_is_named():
    elsewhere = [
        replace(record, environment="other") for record in make.launches(1.0, machine="two")
    ]
    records = [*row("torch", {"fcn5": 1.0, "fcn8": 1.0}, machine="one"), *elsewhere]
    analysis = machines.machines(matrix_of(records, {"one": KIND, "two": TWIN}))
    assert [pair.cell.work.network for pair in pairs_of(analysis)] == ["fcn5"]
    assert (
        "In 1 of 1 the framework's build differs too"
        in machines.REPORT.page(analysis, ReportOptions()).before[0]
    )


EMPTY = {
    "fastest, one row": (fastest.REPORT, make.launches(1.0), "nothing to compare"),
    "frameworks, nothing": (frameworks.REPORT, [], "nothing to compare"),
    "frameworks, one row": (frameworks.REPORT, row("torch", {"fcn5": 1.0}), "nothing to compare"),
    "machines, one": (machines.REPORT, make.launches(1.0), "add the stores of others"),
    "machines, nothing in common": (
        machines.REPORT,
        [*make.launches(1.0, machine="one"), *make.launches(1.0, machine="two", network="fcn8")],
        "have no cell with a time in common",
    ),
}


@pytest.mark.parametrize(("report", "records", "words"), EMPTY.values(), ids=EMPTY)
def test_a_report_with_nothing_to_compare_says_so(report, records, words):
    hosts = {"one": KIND, "two": TWIN, make.MACHINE: Host(make.MACHINE, "two cores")}
    analysis = report.analyse(ReportSource(lambda: Results(tuple(records), hosts)))
    assert words in " ".join(report.page(analysis, ReportOptions()).before)
    assert not report.has_section(analysis)
    assert report.draw is None or not report.drawable(analysis)


def test_pictures_name_rows_and_places_and_are_the_same_each_time(tmp_path):
    times = {"fcn5": 1.0, "fcn8": 1.0}
    records = [
        *row("torch", times),
        *row("torch", times, threads=2),
        *row("jax", times),
        *row("jax", times, threads=2),
    ]
    of_frameworks = frameworks.frameworks(matrix_of(records))
    first, second = (
        frameworks.REPORT.draw(of_frameworks, tmp_path / name, ReportOptions())[0]
        for name in ("a.svg", "b.svg")
    )
    assert {"torch eager", "1", "2", "threads"} <= set(texts(first))
    assert first.read_bytes() == second.read_bytes()
    (of_machines,) = machines.REPORT.draw(
        two_machines(times, times), tmp_path / "m.svg", ReportOptions()
    )
    assert {"beta against alpha", "fcn5, mini-batch 64", "fcn8, mini-batch 64"} <= set(
        texts(of_machines)
    )


def test_verdicts_from_single_launches_are_adjusted_for_their_number() -> None:
    records = [make.record([seconds], threads=threads) for threads, seconds in ((1, 1.0), (2, 1.2))]
    fast, slow = sorted(matrix_of(records).cells.values(), key=lambda cell: cell.cell.threads)
    pair = pair_of(slow, fast)
    assert pair is not None
    assert [judged.verdict for judged in with_verdicts([pair])] == [
        RatioVerdict.SLOWER
    ]  # at launches that deviate by 5 %
    assert {(judged.verdict, judged.p_value) for judged in with_verdicts([pair] * 100)} == {
        (RatioVerdict.INCONCLUSIVE, None)
    }
