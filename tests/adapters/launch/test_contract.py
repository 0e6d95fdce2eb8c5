"""Breaches of the adapter's contract: each is told in one line that says what the adapter did."""

import sys

import numpy as np
import pytest
from small_networks import small_networks

from dlbench.adapters import networks
from dlbench.adapters.base import Adapter
from dlbench.adapters.launch import batches, contract
from dlbench.adapters.launch.contract import ContractBroken
from dlbench.adapters.libraries.gpus import Probe
from dlbench.adapters.protocol import Cell, Launch, Protocol

NETWORK = small_networks(networks)["small-dense"]
WEIGHTS = batches.initial_weights(NETWORK)
FIRST = next(iter(WEIGHTS))


class Answers(Adapter):
    """An adapter that gives these answers."""

    def __init__(self, **answers):
        self.answers = answers

    def supports(self, network):
        return self.answers["supports"]

    def last_loss(self):
        return self.answers["loss"]

    def parameters(self):
        return iter(self.answers["parameters"])

    def effective_threads(self):
        return self.answers["threads"]

    def describe(self):
        return self.answers["describe"]


def test_good_answers_pass_unchanged():
    good = {"framework": "a", "version": "1"}
    adapter = Answers(supports=(True, ""), loss=np.float32(2.5), parameters=WEIGHTS.items(), threads=3, describe=good)
    assert contract.supports(adapter, NETWORK) == (True, "")
    assert contract.loss(adapter) == 2.5
    assert {name: value is WEIGHTS[name] for name, value in contract.learnt(adapter, NETWORK)} == dict.fromkeys(
        WEIGHTS, True
    )
    assert contract.threads(adapter) == 3
    assert contract.threads(Answers(threads=None)) is None
    assert contract.description(adapter) == good


@pytest.mark.parametrize("answer", [None, True, "no", (False,), (False, None), (False, ""), (False, "  ")])
def test_a_refusal_needs_a_reason(answer):
    with pytest.raises(ContractBroken, match="supports"):
        contract.supports(Answers(supports=answer), NETWORK)


@pytest.mark.parametrize(
    ("loss", "words"), [(np.ones(3), r"shape \(3,\)"), (None, "NoneType"), ("much", "str"), ([1.0], r"shape \(1,\)")]
)
def test_a_loss_is_one_number(loss, words):
    with pytest.raises(ContractBroken, match=words):
        contract.loss(Answers(loss=loss))


def changed(name, value):
    return {**WEIGHTS, name: value}.items()


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        (changed("second_bias", np.ones(3)), "'second_bias', which the network does not have"),
        (list(WEIGHTS.items())[1:], f"did not yield {FIRST}"),
        ([*WEIGHTS.items(), (FIRST, WEIGHTS[FIRST])], f"{FIRST} twice"),
        (changed(FIRST, WEIGHTS[FIRST].T), f"{FIRST} has shape"),
        (changed(FIRST, WEIGHTS[FIRST].astype(np.int32)), "int32"),
        (list(WEIGHTS), "not \\(name, array\\)"),
    ],
)
def test_parameters_are_the_networks(parameters, words):
    with pytest.raises(ContractBroken, match=words):
        list(contract.learnt(Answers(parameters=parameters), NETWORK))


@pytest.mark.parametrize("threads", ["two", 1.5, [2]])
def test_a_thread_count_is_a_whole_number(threads):
    with pytest.raises(ContractBroken, match="effective_threads"):
        contract.threads(Answers(threads=threads))


def test_a_probe_is_two_calls_or_none():
    class Probing(Answers):
        def device_probe(self, name, size):
            return self.answers[name]

    good = Probe(print, print)
    assert contract.device_probe(Probing(copy=good), "copy", 8) is good
    assert contract.device_probe(Probing(copy=None), "copy", 8) is None
    assert contract.device_probe(Answers(), "copy", 8) is None  # nobody need offer any
    for bad in (print, (print, print), Probe(print, None), Probe(3, print)):
        with pytest.raises(ContractBroken, match="device_probe"):
            contract.device_probe(Probing(copy=bad), "copy", 8)


@pytest.mark.parametrize("answer", [None, {}, {"framework": "a"}, {"framework": "a", "version": (1, 2)}])
def test_a_description_names_framework_and_version(answer):
    with pytest.raises(ContractBroken, match="describe"):
        contract.description(Answers(describe=answer))


def launch_of(folder, adapter="outside_mine"):
    cell = Cell("mine", adapter, "", "fcn5", "cpu", 1, 4)
    return Launch(cell, Protocol(), {}, "", adapter_directory=str(folder))


@pytest.fixture(autouse=True)
def _fresh_process():
    """Forget what was imported: a launch loads one adapter in a process of its own."""
    yield
    for name in [name for name in sys.modules if ".outside_mine" in name]:
        del sys.modules[name]


@pytest.mark.parametrize("package", [True, False])
def test_an_adapter_outside_finds_our_modules(tmp_path, package):
    if package:
        (tmp_path / "__init__.py").write_text("HERE = 1\n")
    (tmp_path / "part.py").write_text("from ..base import Adapter\n\nclass Mine(Adapter):\n    pass\n")
    (tmp_path / "adapter.py").write_text("from .part import Mine\n\nADAPTER = Mine\n")
    assert isinstance(contract.load(launch_of(tmp_path)), Adapter)


@pytest.mark.parametrize("adapter", ["outside_mine", "mine"])  # a run begun with an earlier dlbench says "mine"
def test_an_adapter_outside_is_a_module_by_one_name(tmp_path, adapter):
    (tmp_path / "adapter.py").write_text("from ..base import Adapter\n\nclass ADAPTER(Adapter):\n    pass\n")
    module = type(contract.load(launch_of(tmp_path, adapter))).__module__
    assert module == contract.__package__.rpartition(".")[0] + ".outside_mine.adapter"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "no adapter.py"),
        ("", "binds no subclass of Adapter"),
        ("ADAPTER = 3\n", "binds no subclass of Adapter"),
        ("class ADAPTER: pass\n", "binds no subclass of Adapter"),
    ],
)
def test_a_folder_without_an_adapter(tmp_path, text, words):
    if text is not None:
        (tmp_path / "adapter.py").write_text(text)
    with pytest.raises(ContractBroken, match=words):
        contract.load(launch_of(tmp_path))
