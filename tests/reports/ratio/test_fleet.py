"""`dlbench report fleet`: what it reads, what it leaves out, and its words, data and picture."""

import itertools
import math
import re
from dataclasses import asdict, replace

import factory_of_records as make
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from dlbench.adapters.protocol import Status
from dlbench.hardware_probe import Reading
from dlbench.reports.formats.export import export
from dlbench.reports.ratio.fleet import NONE, NOTHING, REPORT
from dlbench.reports.ratio.nodes import Kind, NodeSeen, contrasts
from dlbench.reports.report import ReportOptions, ReportSource
from dlbench.reports.results.errors import ReportError
from dlbench.reports.results.flag_kinds import SHARED_NODE
from dlbench.reports.results.hosts import Host, Node
from dlbench.reports.results.results import Narrowing, Results
from dlbench.reports.results.statistics import SIGNIFICANCE, RatioVerdict, summarise

KIND = Host("kind-1", "EPYC, 4 CPUs", 4, 4, 4.0, cpu_model="EPYC", memory_gib=16)
CALM = Reading(
    1e11, 1e10, 0.0, 0.0, 0.0, 0.0, 0.0, 4.0, "NumPy 2, 512 x 512", "2026-03-01T12:00:00.000+00:00"
)


def records(times, fleet="f1", shared=(), machine=KIND.fingerprint):
    """Return a run's records for each node; by node and network, seconds of each launch or of three
    a little apart."""
    return [
        replace(record, node=Node(fleet, node, tuple(shared)))
        for node, networks in times.items()
        for network, seconds in networks.items()
        for record in make.launches(
            seconds, network=network, machine=machine, run=f"{fleet}-{machine}-{node}"
        )
    ]


def report_of(measured, readings=None, hosts=None, narrowing=None, **options):
    """Return the report of these records and, by node, of these readings."""
    host_by_fingerprint = hosts or {KIND.fingerprint: KIND}
    runs = {
        record.run: make.run(id=record.run, machine=record.machine, node=record.node)
        for record in measured
    }

    def sentinels(run):
        return [
            (place, "before", asdict(reading))
            for place, reading in enumerate((readings or {}).get(runs[run].node.name, ()))
        ]

    return REPORT.analyse(
        ReportSource(
            Results,
            lambda: [(run, 1) for run in runs.values()],
            ReportOptions(**options),
            of_run=lambda run: Results(
                tuple(record for record in measured if record.run == run), host_by_fingerprint
            ),
            sentinels=sentinels,
            narrowing=narrowing or Narrowing(),
        )
    )


def readings(products, bandwidths, **changes):
    """Return calm readings of these rates, a minute apart."""
    rates = ("gemm_flops_per_second", "bandwidth_bytes_per_second")
    return [
        replace(
            CALM,
            **dict(zip(rates, pair, strict=True)),
            taken=f"2026-03-01T12:{minute:02}:00.000+00:00",
            **changes,
        )
        for minute, pair in enumerate(zip(products, bandwidths, strict=True))
    ]


def kind(logs):
    """Return a kind of the log-medians of launches, shape (nodes, benchmarks, launches), nodes
    named n1, n2, ..."""
    names = [f"n{place + 1}" for place in range(len(logs))]
    times = {}
    for place, times_of_nodes in enumerate(np.exp(logs.transpose(1, 0, 2))):
        summaries = {}
        for name, launches in zip(names, times_of_nodes, strict=True):
            summaries[name] = summarise([[seconds] for seconds in launches])
        times[f"benchmark {place}"] = summaries
    return Kind(KIND, {name: NodeSeen(name) for name in names}, times)


def drawn(rng, shape, launch=0.01, node=0.0, slow=1.0):
    """Return log-medians, shape (nodes, benchmarks, launches): of launches and nodes that deviate;
    the last is slow."""
    nodes, benchmarks, _ = shape
    levels = rng.normal(0.0, node, (nodes, 1, 1)) + rng.normal(0.0, 1.0, (1, benchmarks, 1))
    levels[-1] += np.log(slow)
    return levels + rng.normal(0.0, launch, shape)


SAME = {f"n{number}": {"fcn5": 1.0, "fcn8": 2.0} for number in range(1, 7)}
SLOW = {**SAME, "n3": {"fcn5": 1.3, "fcn8": 2.6}}


def shown(kinds, top=12):
    return export(REPORT, kinds, ReportOptions(top=top), "terminal")


def by_node(kinds):
    """Return of each node its facts, its mean, and its benchmarks."""
    (kind,) = REPORT.as_data(kinds)["machines"]
    nodes = {facts["node"]: {**facts, "on": []} for facts in kind["nodes"]}
    for ratio in kind["ratios"]:
        if ratio["benchmark"] == "mean":
            nodes[ratio["node"]].update(ratio)
        else:
            nodes[ratio["node"]]["on"].append(ratio)
    return nodes


def ratios(times):
    """Return by node and benchmark the value and ends of every ratio, and by node its verdict."""
    nodes = by_node(report_of(times))
    numbers = {}
    for name, node in nodes.items():
        for line in (node, *node["on"]):
            for end in ("value", "low", "high"):
                numbers[name, line.get("network"), end] = line["ratio"][end]
    return numbers, {name: node["verdict"] for name, node in nodes.items()}


NAMES = ("n1", "n2", "n3", "n4")
LAUNCHES = st.lists(st.floats(0.5, 2.0), min_size=3, max_size=3)
FLEETS = st.fixed_dictionaries(
    dict.fromkeys(NAMES, st.fixed_dictionaries(dict.fromkeys(("fcn5", "fcn8"), LAUNCHES)))
)


@given(FLEETS, st.randoms(use_true_random=False), st.permutations(NAMES), st.floats(0.25, 4.0))
def test_names_order_and_scale_change_nothing(times, random, names, scale):
    measured, called = records(times), dict(zip(NAMES, names, strict=True))
    numbers, verdicts = ratios(measured)
    random.shuffle(measured)
    assert ratios(measured) == (numbers, verdicts)
    renamed, verdict_of = ratios(records({called[name]: times[name] for name in NAMES}))
    assert {name: verdict_of[called[name]] for name in NAMES} == verdicts
    assert {at: renamed[called[at[0]], *at[1:]] for at in numbers} == pytest.approx(
        numbers, rel=1e-6
    )
    scaled = {}
    for name, networks in times.items():
        scaled[name] = {
            network: [scale * seconds for seconds in launches]
            for network, launches in networks.items()
        }
    assert ratios(records(scaled))[0] == pytest.approx(numbers, rel=1e-5)


def test_the_slow_node_is_named_with_its_ratio_and_on_what():
    rates = {
        n: readings([1e11, 1.01e11, 0.99e11, 1e11], [1e10, 1.01e10, 0.99e10, 1e10]) for n in SLOW
    }
    rates["n3"] = readings([1e11, 1.01e11, 0.99e11, 1e11], [5e9, 5.05e9, 4.95e9, 5e9])
    kinds = report_of(records(SLOW), rates)
    (line,) = REPORT.headline(kinds)
    assert re.match(
        r"n3 is slower: 1\.36x 1\.\d+-1\.\d+ the time of the 5 other nodes of its kind \(geometric",
        line,
    )
    assert line.endswith("(geometric mean of 4 benchmarks); most on memory bandwidth, 2.00x.")
    text = shown(kinds)
    assert max(map(len, text.splitlines())) <= 80
    assert "n3, by benchmark" in text
    assert REPORT.has_section(kinds)
    nodes = by_node(kinds)
    assert nodes["n3"]["on"][0]["benchmark"] == "memory bandwidth"
    assert nodes["n3"]["readings"] == 4
    assert {name for name, node in nodes.items() if node["verdict"] == RatioVerdict.SLOWER} == {
        "n3"
    }


def test_of_two_nodes_either_may_be_at_fault():
    kinds = report_of(records({name: SLOW[name] for name in ("n1", "n3")}))
    (line,) = REPORT.headline(kinds)
    assert line.startswith("n3 takes 1.30x 1.")
    assert "With only two nodes, either one may be at fault." in line


def test_a_shared_or_disturbed_node_is_marked_and_that_may_be_why():
    busy = make.contention(steal_seconds=5.0)
    measured = [record for record in records(SLOW) if record.node.name != "n3"]
    measured += make.changed(records({"n3": SLOW["n3"]}, shared=("2 other jobs",)), contention=busy)
    result = report_of(measured)
    (line,) = REPORT.headline(result)
    assert "It was shared when it was measured (2 other jobs), which may be why." in line
    assert "Other programs disturbed 6 of its 6 launches." in line
    assert "n3 s ~" in shown(result)
    assert SHARED_NODE.legend in " ".join(shown(result).split())


def test_readings_that_others_disturbed_and_repeated_ones_do_not_count():
    calm = readings([1e11, 1.01e11, 0.99e11], [1e10, 1.01e10, 0.99e10])
    slowed = replace(
        CALM, bandwidth_bytes_per_second=1e9, others_cpus=2.0, taken="2026-03-01T13:00:00.000+00:00"
    )
    kinds = report_of(records(SAME), {name: [*calm, calm[-1], slowed] for name in SAME})
    assert {node["readings"] for node in by_node(kinds).values()} == {3}
    assert REPORT.headline(kinds) == [NOTHING]
    # Of another library the rates do not compare; and who asks for a network asks for no speed of
    # the machine.
    with_other_library = {
        **dict.fromkeys(SAME, calm),
        "n6": [replace(reading, method="NumPy 3") for reading in calm],
    }
    assert "n6 is not compared on 2 benchmarks" in " ".join(
        shown(report_of(records(SAME), with_other_library)).split()
    )
    narrowed = report_of(
        records(SAME), dict.fromkeys(SAME, calm), narrowing=Narrowing(axes={"network": "fcn5"})
    )
    assert {tuple(on["network"] for on in node["on"]) for node in by_node(narrowed).values()} == {
        ("fcn5",)
    }


def test_missing_results_are_listed():
    times = {**SAME, "n2": {"fcn5": 1.0}}
    measured = []
    for record in records(times):
        if (record.node.name, record.cell.network) == ("n4", "fcn8"):
            measured.append(replace(record, environment="other"))
        else:
            measured.append(record)
    measured += [
        replace(
            make.hole(Status.CRASHED, "signal 11", run="r9", machine=KIND.fingerprint),
            node=Node("f1", "n9"),
        )
    ]
    measured += records({"x1": {"fcn5": 1.0}}, machine="kind-2")
    wrong = make.outcome(parity=make.parity("disagrees", "wrong"))
    measured += [replace(record, outcome=wrong) for record in records({"n8": {"fcn5": 1.0}})]
    other_kind = replace(KIND, fingerprint="kind-2", name="Xeon, 2 CPUs")
    lines = REPORT.as_data(
        report_of(measured, hosts={KIND.fingerprint: KIND, "kind-2": other_kind})
    )["missing"]
    fcn8 = "1 benchmark (fcn8, mini-batch 64, torch eager, 1 thread)"
    assert lines == [
        "n8 has no result that counts (3 parity failed).",
        "n9 has no result that counts (1 crashed).",
        f"n4 is not compared on {fcn8}, measured with another build than on most nodes.",
        f"n2 has no result of {fcn8}, which other nodes have.",
        "x1 is the only node of its kind with results (Xeon, 2 CPUs): nothing to compare it with.",
    ]


def test_one_fleet_can_be_chosen_and_one_that_is_not_there_is_an_error():
    measured = [*records(SAME, fleet="20261101"), *records(SLOW, fleet="20261102")]
    assert {len(node["fleets"]) for node in by_node(report_of(measured)).values()} == {2}
    assert REPORT.headline(report_of(measured, fleet="20261101")) == [NOTHING]
    assert REPORT.headline(report_of(measured, fleet="20261102"))[0].startswith("n3 is slower")
    nothing = report_of(measured, narrowing=Narrowing(suite="other"))
    assert (nothing, REPORT.page(nothing, ReportOptions()).before) == ([], (NONE,))
    with pytest.raises(ReportError, match="There is no fleet 'x'; there are 20261101, 20261102"):
        report_of(measured, fleet="x")
    with pytest.raises(ReportError, match="2 fleets begin with '2026'"):
        report_of(measured, fleet="2026")


def test_of_many_nodes_the_slowest_are_shown_and_the_others_counted():
    times = {f"n{number:03}": {"fcn5": 1.0} for number in range(60)} | {"n030": {"fcn5": 1.5}}
    kinds = report_of(records(times))
    text = shown(kinds, top=5)
    assert "55 further nodes: 55 same." in " ".join(text.split())
    assert text.index("n030") < text.index("n000")
    assert len(list(REPORT.as_rows(kinds).lines)) == 120


# Nodes whose truth is known.

SEED = 20261123
ROUNDS = 120


def judged(logs):
    """Return the ratios on benchmarks, and the mean of each node."""
    (nodes,) = contrasts([kind(logs)])
    means, ratios_of_nodes = zip(*nodes, strict=True)
    return list(itertools.chain(*ratios_of_nodes)), list(means)


@pytest.mark.parametrize(
    ("shape", "noisy"),
    [
        ((6, 4, 3), 1.0),
        pytest.param((5, 3, 5), 1.0, marks=pytest.mark.slow),
        ((6, 4, 4), 3.0),
        pytest.param((2, 4, 4), 1.0, marks=pytest.mark.slow),
    ],
)
def test_alike_nodes_raise_few_false_alarms_and_intervals_cover_what_they_say(shape, noisy):
    rng = np.random.default_rng(SEED)
    alarms, covered = [], []
    for _ in range(ROUNDS):
        logs = drawn(rng, shape, launch=0.0)
        noise = rng.normal(0.0, 0.03, shape)
        noise[0] *= noisy
        families = judged(logs + noise)
        alarms_of_families, shares_covered = [], []
        for family in families:
            alarms_of_families.append(any(ratio.p_adjusted < SIGNIFICANCE for ratio in family))
            covers = [ratio.ratio.low <= 1 <= ratio.ratio.high for ratio in family]
            shares_covered.append(np.mean(covers))
        alarms.append(alarms_of_families)
        covered.append(shares_covered)
    most = binom.ppf(0.999, ROUNDS, SIGNIFICANCE)
    assert np.sum(alarms, axis=0).max() <= most
    for share in np.mean(covered, axis=0):
        # Intervals of a node that is noisier than the others cover more than they say.
        assert 0.93 <= share <= (0.97 if noisy == 1.0 else 0.985)


def test_a_node_five_per_cent_slow_is_found_and_no_other():
    rng = np.random.default_rng(SEED)
    for _ in range(20):
        on, means = judged(drawn(rng, (8, 6, 3), node=0.003, slow=1.05))
        assert [ratio.verdict for ratio in means[:-1]] == [RatioVerdict.SAME] * 7
        assert means[-1].verdict == RatioVerdict.SLOWER
        assert means[-1].ratio.value == pytest.approx(1.05, rel=0.015)
        assert means[-1].others == 7
        assert RatioVerdict.SLOWER in {ratio.verdict for ratio in on if ratio.node.name == "n8"}


@pytest.mark.parametrize("factor", [1.3, 30.0])
def test_a_very_slow_node_makes_no_other_look_fast(factor):
    logs = drawn(np.random.default_rng(SEED), (3, 4, 4), slow=factor)
    on, means = judged(logs)
    assert [ratio.verdict for ratio in means] == [
        RatioVerdict.SAME,
        RatioVerdict.SAME,
        RatioVerdict.SLOWER,
    ]
    assert [ratio.others for ratio in means] == [1, 1, 2]
    assert RatioVerdict.FASTER not in {ratio.verdict for ratio in on}
    assert means[-1].ratio.value == pytest.approx(factor, rel=0.02)


def test_several_slow_nodes_and_a_fast_one_are_all_named():
    logs = drawn(np.random.default_rng(SEED), (9, 4, 4))
    for node, factor in ((0, 3.0), (1, 1.2), (2, 0.8)):
        logs[node] += math.log(factor)
    _, means = judged(logs)
    assert [ratio.verdict for ratio in means] == [
        RatioVerdict.SLOWER,
        RatioVerdict.SLOWER,
        RatioVerdict.FASTER,
        *[RatioVerdict.SAME] * 6,
    ]
    assert [ratio.ratio.value for ratio in means[:3]] == pytest.approx([3.0, 1.2, 0.8], rel=0.02)


def test_a_node_slow_on_one_benchmark_only_is_named_there():
    logs = drawn(np.random.default_rng(SEED), (6, 12, 4))
    logs[2, 7] += math.log(1.15)
    on, means = judged(logs)
    assert [
        (ratio.node.name, ratio.benchmark) for ratio in on if ratio.verdict == RatioVerdict.SLOWER
    ] == [("n3", "benchmark 7")]
    assert RatioVerdict.SLOWER not in {ratio.verdict for ratio in means}


def test_of_one_launch_each_there_is_no_p_value_and_noise_is_no_finding():
    rng = np.random.default_rng(SEED)
    on, means = judged(drawn(rng, (10, 4, 1), slow=1.5))
    assert {ratio.p_adjusted for ratio in on} == {None}
    assert [ratio.verdict for ratio in means].count(RatioVerdict.SLOWER) == 1
    assert means[-1].verdict == RatioVerdict.SLOWER
    on, means = judged(drawn(rng, (10, 4, 1)))
    assert not {RatioVerdict.SLOWER, RatioVerdict.FASTER} & {
        ratio.verdict for ratio in (*on, *means)
    }
