"""Networks that a suite defines for itself: tables, grids, patterns, and what is said of a wrong one."""

import pytest

from dlbench.adapters.networks import digest_of
from dlbench.reports.storage.store import Store
from dlbench.suites.errors import SuiteError, UsageError
from dlbench.suites.planning import suite
from dlbench.suites.planning.axes import SuiteOverrides
from dlbench.suites.planning.plan import expand
from dlbench.suites.planning.values import Capacity

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
    return expand(suite.parse(HEAD + text, "mine.toml"), SuiteOverrides(**choices), Capacity(1, 1), 0)


def names(text, **choices):
    return [cell.network for cell in plan(text, **choices).cells]


def test_a_network_of_the_suites_own_is_planned_with_its_numbers_and_mini_batch():
    found = plan('networks = ["small", "fcn5"]\n' + SMALL)
    small, fcn5 = found.cells
    assert (small.network, small.batch_size) == ("small", 48)
    assert small.specification == digest_of(found.networks["small"]) != ""
    assert (fcn5.network, fcn5.batch_size, fcn5.specification) == ("fcn5", 64, "")
    assert found.network_of(small).family.hidden == (512, 512)


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
    found = plan(GRID)
    assert [cell.network for cell in found.cells] == ["rnn-h8-t4", "rnn-h8-t12", "rnn-h16-t4", "rnn-h16-t12"]
    assert {cell.batch_size for cell in found.cells} == {32}
    assert len({cell.specification for cell in found.cells}) == 4
    assert found.networks["rnn-h16-t4"].family.embedding == 16


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("rnn-*", ["rnn-h8-t4", "rnn-h8-t12", "rnn-h16-t4", "rnn-h16-t12"]),
        ("*-t12", ["rnn-h8-t12", "rnn-h16-t12"]),
        ("rnn-h8-t4,rnn-*-t4", ["rnn-h8-t4", "rnn-h16-t4"]),
        ("lstm*", ["lstm32", "lstm64"]),
        ("fcn5", ["fcn5"]),
    ],
)
def test_a_pattern_names_networks_of_the_suite_first(words, found):
    assert names(GRID, networks=words) == found


@pytest.mark.parametrize("words", ["nothing-*", "rnn-h8"])
def test_a_name_that_is_none_is_refused_with_those_there_are(words):
    with pytest.raises(UsageError, match="rnn-h8-t4"):
        names(GRID, networks=words)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (SMALL.replace("[512, 512]", "512"), r"mine.toml, \[\[network\]\] 1, key hidden: 512 is not a list"),
        (SMALL + SMALL.replace("784", "0"), r"\[\[network\]\] 2, key inputs: 0 is not a whole number"),
        (SMALL + SMALL.replace("784", "783"), r"\[\[network\]\] 2, key name: there is another network named small"),
        (SMALL.replace("feedforward", "feedfoward"), r"key family: .*Did you mean 'feedforward'"),
        (SMALL.replace('family = "feedforward"\n', ""), r"key family: it is missing. The families are: attention"),
        (SMALL.replace('"small"', '"a b"'), r"key name: give a name of letters"),
        (SMALL.replace("48", "0"), r"key batch_size: 0 is not a whole number"),
        (SMALL.replace("batch_size", "batchsize"), r"key batchsize: there is no such key here. Did you mean 'batch_"),
        (SMALL.replace('"small"', '"fcn5"'), r"fcn5 is a network of dlbench, with other numbers. Choose another name"),
        (GRID.replace("{hidden}", ""), r"\[\[grid\]\] 1, key name: several networks .*Put \{hidden\} into it"),
        (GRID.replace("{hidden}", "{hiden}"), r"key name: \{hiden\} is not a number of this grid"),
        (GRID.replace("{hidden}", "{}"), r"key name: .*brace"),
        (GRID.replace("[8, 16]", "[]"), r"\[\[grid\]\] 1, key hidden: the list is empty"),
        (GRID.replace("[8, 16]", str(list(range(1, 6000)))), r"\[\[grid\]\] 1: its product is 11998 networks"),
        (GRID.replace("layers = 1", "layer = 1"), r"\[\[grid\]\] 1, key layers: it is missing"),
    ],
)
def test_a_wrong_table_is_named_with_its_number_and_key(text, words):
    with pytest.raises(SuiteError, match=words):
        plan(text)


def test_a_plan_of_other_numbers_is_not_gone_on_with():
    before, now = plan(SMALL), plan(SMALL.replace("784", "783"))
    assert before.cells[0].network == now.cells[0].network
    assert before.cells != now.cells
    with pytest.raises(UsageError, match="small had other numbers when this was planned"):
        now.network_of(before.cells[0])


def test_two_networks_of_one_name_share_no_cell_and_records_keep_their_numbers(tmp_path, command):
    for numbers in ("784", "783"):
        text = HEAD + "[protocol]\nsteps = 3\nseconds = 0.1\n" + SMALL.replace("784", numbers).replace("512", "8")
        (tmp_path / "mine.toml").write_text(text)
        assert command("run", "mine.toml", "--no-ceilings", "--no-quiet-gate")[0] == 0
    with Store.open(tmp_path / "dlbench.sqlite", create=False) as store:
        records = store.records()
        assert len(store.cells()) == 2
    assert [record.network["numbers"]["inputs"] for record in records] == [784, 783]
    _, matrix, _ = command("report", "matrix", "--all-runs")
    assert matrix.count("small, mini-batch 48") == 2
    assert "small is the name of 2 networks with different numbers" in matrix
    assert command("report", "tables")[1].count("3 dense") == 2
