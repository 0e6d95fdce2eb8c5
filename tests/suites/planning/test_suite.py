"""Suite files: a wrong one gives one SuiteError with the key; their networks; commands that measure
a cell again."""

import json
import math
import re
import shlex
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from properties import examples
from typer.testing import CliRunner

from dlbench.adapters.networks import digest_of
from dlbench.adapters.protocol import BOUND, Cell
from dlbench.reports.results.networks import specification_of_cells
from dlbench.reports.results.storage.store import Store
from dlbench.suites.cli import build_app
from dlbench.suites.errors import SuiteError, UsageError
from dlbench.suites.planning import suite
from dlbench.suites.planning.axes import SuiteOverrides
from dlbench.suites.planning.plan import expand
from dlbench.suites.planning.suite import load, rerun_by_name, rerun_command
from dlbench.suites.planning.values import Capacity

GOOD = {
    "name": "mine",
    "summary": "a suite of my own",
    "networks": ["fcn5"],
    "frameworks": ["null"],
    "threads": [1, "cores"],
}


def toml(content):
    """Write a dictionary as TOML, whose values are JSON's but for tables and infinity."""

    def written(value):
        if isinstance(value, dict):
            items = [f"{json.dumps(key)} = {written(item)}" for key, item in value.items()]
            return "{" + ", ".join(items) + "}"
        return "inf" if value == math.inf else json.dumps(value)

    return "\n".join(f"{json.dumps(key)} = {written(value)}" for key, value in content.items())


def refused(text, where="my.toml"):
    with pytest.raises(SuiteError) as caught:
        suite.parse(text, where)
    message = str(caught.value)
    assert message.startswith(where)
    assert "\n" not in message
    assert caught.value.exit_code == 2
    return message


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"networks": ["fcn55"]}, ["key networks", "'fcn55'", "Did you mean 'fcn5'?"]),
        ({"frameworks": ["tourch"]}, ["key frameworks", "Did you mean 'torch'?"]),
        ({"threads": [0]}, ["key threads", "whole number from 1"]),
        ({"threads_limit": "lots"}, ["key threads_limit", "4*cpus"]),
        ({"devices": ["gpu"]}, ["key devices", "cuda:0"]),
        ({"device_threads": "1,2"}, ["key device_threads", "Give one"]),
        ({"batch_sizes": {"fcn9": [1]}}, ["key batch_sizes", "Did you mean"]),
        ({"protocol": {"launches": "9-3"}}, ["key protocol.launches", "the smaller first"]),
        (
            {"protocol": {"launches": "5-20", "interval": "fine"}},
            ["key protocol.interval", "such as 2%"],
        ),
        (
            {"protocol": {"launches": 5, "interval": "2%"}},
            ["key protocol.interval", "range of launches"],
        ),
        ({"affinity": ["pinned"]}, ["key affinity", "bound, oversubscribed"]),
        ({"settings": {"nul": {}}}, ["key settings", "Did you mean 'null'?"]),
        ({"settings": {"null": {"step_seconds": math.inf}}}, ["key settings", "finite"]),
        ({"a\nb": 1}, ["key a b"]),
        ({"lunches": 3}, ["key lunches: unknown key. Did you mean 'launches' in [protocol]?"]),
        (
            {"protocol": {"lunches": 3}},
            ["key protocol.lunches: unknown key. Did you mean 'launches'?"],
        ),
        ({"zzz": 1}, ["key zzz: unknown key. Known: affinity, batch_sizes"]),
        ({"networks": "fcn5"}, ['key networks: "fcn5" is not a list, as in ["fcn5", "lstm32"].']),
        ({"networks": []}, ["key networks: Name at least one"]),
        ({"threads": True}, ["key threads: true is not a list of counts, as in [1, 2, 4]."]),
        ({"name": "a b"}, ["key name: 'a b' may contain only letters"]),
        (
            {"protocol": {"steps": 0}},
            ["key protocol.steps: 0 is out of range: it must be at least 1."],
        ),
        ({"protocol": {"launches": True}}, ["key protocol.launches: true is not a whole number."]),
        (
            {"protocol": {"seconds": -1}},
            ["key protocol.seconds: -1 is out of range: it must be more than 0."],
        ),
        (
            {"protocol": {"seconds": math.inf}},
            ["key protocol.seconds: it must be a finite number."],
        ),
        ({"protocol": 3}, ["key protocol: 3 is not a table, as in [protocol]."]),
    ],
)
def test_a_wrong_value_is_named_with_file_key_and_remedy(changes, parts):
    message = refused(toml({**GOOD, **changes}))
    for part in parts:
        assert part in message
    # In the words of the file, never in those of the library that checks it.
    assert not re.search(
        r"[Ii]nput|tuple|[Ee]xtra|pydantic|permitted|dictionary|validation", message
    )
    assert message.endswith((".", "?"))


@pytest.mark.parametrize(
    "text", ["", "name", "= 1", "[[[", "a = " + "[" * 5000, "a = " + "1" * 5000, "x = 1\nx = 2"]
)
def test_a_suite_that_is_not_toml_is_refused(text):
    refused(text)


SMALL = """
[[network]]
name = "small"
family = "feedforward"
inputs = 784
hidden = [512, 512]
outputs = 10
activation = "relu"
batch_size = 48
"""
HEAD = 'name = "mine"\nsummary = "mine"\nframeworks = ["null"]\nthreads = [1]\n'


def plan(text, **choices):
    return expand(
        suite.parse(HEAD + text, "mine.toml"), SuiteOverrides(**choices), Capacity(1, 1), 0
    )


def names(text, **choices):
    return [cell.network for cell in plan(text, **choices).cells]


def test_a_network_of_the_suites_own_is_planned_with_its_numbers_and_mini_batch():
    planned = plan('networks = ["small", "fcn5"]\n' + SMALL)
    small, fcn5 = planned.cells
    assert (small.network, small.batch_size) == ("small", 48)
    assert small.specification == digest_of(planned.networks["small"]) != ""
    assert (fcn5.network, fcn5.batch_size, fcn5.specification) == ("fcn5", 64, "")
    assert planned.network_of(small).family.hidden == (512, 512)


GRID = """
[[grid]]
family = "recurrent"
name = "rnn-h{hidden}-t{steps}"
vocabulary = 100
embedding = "hidden"
hidden = [8, 16]
layers = 1
steps = [4, 12]
batch_size = 32
"""


def test_a_grid_is_the_product_of_its_values_in_the_order_of_the_file():
    planned = plan(GRID)
    assert [cell.network for cell in planned.cells] == [
        "rnn-h8-t4",
        "rnn-h8-t12",
        "rnn-h16-t4",
        "rnn-h16-t12",
    ]
    assert {cell.batch_size for cell in planned.cells} == {32}
    assert len({cell.specification for cell in planned.cells}) == 4
    assert planned.networks["rnn-h16-t4"].family.embedding == 16


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("rnn-*", ["rnn-h8-t4", "rnn-h8-t12", "rnn-h16-t4", "rnn-h16-t12"]),
        ("*-t12", ["rnn-h8-t12", "rnn-h16-t12"]),
        ("rnn-h8-t4,rnn-*-t4", ["rnn-h8-t4", "rnn-h16-t4"]),
        ("lstm*", ["lstm32", "lstm64"]),
        ("fcn5", ["fcn5"]),
    ],
)
def test_a_pattern_names_networks_of_the_suite_first(words, expected):
    assert names(GRID, networks=words) == expected


@pytest.mark.parametrize("words", ["nothing-*", "rnn-h8"])
def test_a_name_that_is_none_is_refused_with_those_there_are(words):
    with pytest.raises(UsageError, match="rnn-h8-t4"):
        names(GRID, networks=words)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            SMALL.replace("[512, 512]", "512"),
            r"mine.toml, \[\[network\]\] 1, key hidden: 512 is not a list",
        ),
        (
            SMALL + SMALL.replace("784", "0"),
            r"\[\[network\]\] 2, key inputs: 0 is not a whole number",
        ),
        (
            SMALL + SMALL.replace("784", "783"),
            r"\[\[network\]\] 2, key name: there is another network named small",
        ),
        (SMALL.replace("feedforward", "feedfoward"), r"key family: .*Did you mean 'feedforward'"),
        (
            SMALL.replace('family = "feedforward"\n', ""),
            r"key family: it is missing. The families are: attention",
        ),
        (SMALL.replace('"small"', '"a b"'), r"key name: give a name of letters"),
        (SMALL.replace("48", "0"), r"key batch_size: 0 is not a whole number"),
        (
            SMALL.replace("batch_size", "batchsize"),
            r"key batchsize: this table has no such key. Did you mean 'batch_",
        ),
        (
            SMALL.replace("inputs", "input"),
            r"key input: this table has no such key. Did you mean 'inputs'",
        ),
        (
            SMALL.replace('"small"', '"fcn5"'),
            r"fcn5 is a network of dlbench with other numbers. Choose another name",
        ),
        (
            GRID.replace("{hidden}", ""),
            r"\[\[grid\]\] 1, key name: several networks .*Put \{hidden\} into it",
        ),
        (GRID.replace("{hidden}", "{hiden}"), r"key name: \{hiden\} is not a number of this grid"),
        (GRID.replace("{hidden}", "{}"), r"key name: .*brace"),
        (GRID.replace("[8, 16]", "[]"), r"\[\[grid\]\] 1, key hidden: the list is empty"),
        (
            GRID.replace("[8, 16]", str(list(range(1, 6000)))),
            r"\[\[grid\]\] 1: its product is 11998 networks",
        ),
        (
            GRID.replace("layers = 1", "layer = 1"),
            r"\[\[grid\]\] 1, key layer: this table has no such key. Did you mean .layers",
        ),
    ],
)
def test_a_wrong_table_is_named_with_its_number_and_key(text, words):
    with pytest.raises(SuiteError, match=words):
        plan(text)


def test_a_plan_of_other_numbers_is_not_gone_on_with():
    before, after = plan(SMALL), plan(SMALL.replace("784", "783"))
    assert before.cells[0].network == after.cells[0].network
    assert before.cells != after.cells
    with pytest.raises(UsageError, match="small was planned with other numbers"):
        after.network_of(before.cells[0])


def test_two_networks_of_one_name_share_no_cell_and_records_keep_their_numbers(tmp_path, command):
    for numbers in ("784", "783"):
        text = (
            HEAD
            + "[protocol]\nsteps = 3\nseconds = 0.1\n"
            + SMALL.replace("784", numbers).replace("512", "8")
        )
        (tmp_path / "mine.toml").write_text(text)
        assert command("run", "mine.toml", "--no-ceilings", "--no-wait-for-quiet")[0] == 0
    with Store.open(tmp_path / "dlbench.sqlite", create=False) as store:
        records = store.records()
        assert len(store.cells()) == 2
    assert [record.network["numbers"]["inputs"] for record in records] == [784, 783]
    _, matrix, _ = command("report", "matrix", "--all-runs")
    assert matrix.count("small, mini-batch 48") == 2
    assert "small is the name of 2 networks with different numbers" in matrix
    assert command("report", "tables")[1].count("3 dense") == 2


cells = st.builds(
    lambda **fields: Cell(adapter="", mode="null", framework="null", device="cpu", **fields),
    network=st.sampled_from(["fcn5", "lstm32"]),
    threads=st.sampled_from([1, 2, 4]),
    batch_size=st.sampled_from([8, 64]),
    world_size=st.sampled_from([1, 2]),
    affinity=st.sampled_from(["oversubscribed", BOUND]),
    sync=st.sampled_from(["step", "step", "local:4", "async"]),
).filter(lambda cell: cell.affinity != BOUND or cell.all_threads == 1)  # however few CPUs there are
cells = cells.filter(lambda cell: cell.world_size > 1 or cell.sync == "step")


def planned(command: str) -> list[dict[str, Any]]:
    words = shlex.split(command)
    assert words[:2] == ["dlbench", "run"]
    done = CliRunner().invoke(build_app("plan"), ["plan", *words[2:], "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)["cells"]


@examples(40)
@given(cells)
def test_the_command_plans_the_cell_alone(cell: Cell) -> None:
    (only,) = planned(rerun_command(cell, "table4", launches=3))
    for axis, value in cell._asdict().items():
        if axis in only and axis not in ("adapter", "specification"):
            assert only[axis] == value, axis


@examples(30)
@given(cells, st.sampled_from(["threads", "scaling", "tuning", "figure1"]))
def test_the_rerun_command_names_choices_that_differ_from_the_suite(cell: Cell, suite: str) -> None:
    if cell.network == "fcn5" and cell.world_size == 1:
        (only,) = planned(rerun_command(cell, suite))
        assert (only["tuning"], only["affinity"], only["device"]) == (
            cell.tuning,
            cell.affinity,
            cell.device,
        )


def test_a_cell_of_the_claims_is_measured_by_a_suite_that_has_its_network() -> None:
    for network in ("fcn5", "resnet50"):
        cell = Cell("null", "", "null", network, "cpu", 2, 16)
        (only,) = planned(rerun_by_name(cell, "claims", 3))
        assert (only["network"], only["threads"], only["batch_size"]) == (network, 2, 16)
    paper = load("rnn2017")
    name = paper.its_networks[0]
    cell = Cell(
        "null",
        "",
        "null",
        name,
        "cpu",
        1,
        64,
        specification=specification_of_cells(paper.known[name]),
    )
    (only,) = planned(rerun_by_name(cell, "claims", 3))
    assert only["network"] == name


def test_a_row_of_the_users_own_names_the_option_that_brings_it() -> None:
    torch = Cell("torch-nightly", "pytorch", "eager", "fcn5", "cpu", 2, 64)
    assert rerun_by_name(torch, "quick", 1).endswith(" --python torch-nightly:torch=PATH")
    assert rerun_by_name(torch._replace(framework="mine", adapter="mine"), "quick", 1).endswith(
        " --adapter mine=PATH"
    )
    assert "PATH" not in rerun_by_name(torch._replace(framework="torch"), "quick", 1)
    assert rerun_by_name(torch._replace(framework="pytest-benchmark"), "pytest-benchmark", 1) == ""


def test_a_network_of_another_suite_is_refused_with_that_suite() -> None:
    quick = suite.load("quick")
    with pytest.raises(UsageError, match=r"no network named 'resnet-small'. The suite containers"):
        quick.select_networks("resnet-small")
    with pytest.raises(UsageError, match="Did you mean 'resnet50'"):
        quick.select_networks("resnet51")
