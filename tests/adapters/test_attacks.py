"""Adapters that cheat, or err as honest people do: each is distinguished from an honest one, with
what was seen.

Each entry of ``attacks.py`` is an adapter that departs from an honest one, NumPy in float32, in one
way. What is caught by which evidence stands in reports/docs/explanation/parity.md; a test compares
its table with this list.
"""

import re
from pathlib import Path

import pytest
from one_launch import launch_once

from dlbench.adapters.families import Feedforward
from dlbench.adapters.networks import network_with
from dlbench.adapters.protocol import OUTSIDE, TASKS, Protocol, Status
from dlbench.suites.environments import folders
from dlbench.suites.planning.framework import find
from dlbench.suites.run.launcher import no_tick, run_together
from dlbench.suites.run.turns import Member, Turns, rounds_of

ATTACKS = Path(__file__).with_name("attacks.py").read_text()
PARITY = Path(__file__).parents[2] / "reports/docs/explanation/parity.md"
#: A step of some 50 ms with one thread.
NETWORK = network_with("attacked", Feedforward(1024, (1024, 1024), 1024, "sigmoid"), 256)
PROTOCOL = Protocol(warmup_steps=3, steps=12, minimum_steps=5, seconds=0.7)
#: Beside other tests what is allowed for waiting hides a short lie, and a hidden process gets
#: little CPU time.
LONGER = dict.fromkeys(
    ("hides_a_helper", "slows_the_clock"), PROTOCOL._replace(steps=60, seconds=2.5)
)
_SLOWER = "right after, in the parity check"
_MATHEMATICS = "update of|loss off"

#: What each ends as, and what its reason says.
CAUGHT = {
    "skips_most_steps": (Status.IMPLAUSIBLE, "GFLOP/s.*update of"),
    "skips_after_the_first_steps": (Status.IMPLAUSIBLE, "GFLOP/s.*update of"),
    "skips_at_the_timed_rate": (Status.IMPLAUSIBLE, _SLOWER),
    "skips_until_it_is_reset": (Status.IMPLAUSIBLE, _SLOWER),
    "leaves_work_unfinished": (Status.IMPLAUSIBLE, "GFLOP/s"),
    "updates_biases_alone": (Status.PARITY_FAILED, _MATHEMATICS),
    "updates_the_last_layer_alone": (Status.PARITY_FAILED, _MATHEMATICS),
    "reuses_gradients": (Status.IMPLAUSIBLE, "GFLOP/s.*update of"),
    "reuses_gradients_of_the_same_data": (Status.IMPLAUSIBLE, _SLOWER),
    "keeps_the_first_mini_batch": (Status.PARITY_FAILED, _MATHEMATICS),
    "computes_a_quarter": (Status.PARITY_FAILED, _MATHEMATICS),
    "computes_a_quarter_when_timed": (Status.IMPLAUSIBLE, _SLOWER),
    "computes_in_lower_precision": (Status.PARITY_FAILED, _MATHEMATICS),
    "works_ahead_in_prepare": (Status.IMPLAUSIBLE, "of CPU time for"),
    "hides_a_helper": (Status.IMPLAUSIBLE, "the host saw"),
    "slows_the_clock": (Status.IMPLAUSIBLE, "the host's clock saw"),
    "reads_the_reference": (Status.IMPLAUSIBLE, "GFLOP/s"),
    "tells_losses_from_a_table": (Status.IMPLAUSIBLE, "GFLOP/s.*update of"),
    "writes_its_own_outcome": (Status.CRASHED, "without the requested parity check"),
    "speaks_for_itself_to_the_host": (Status.IMPLAUSIBLE, "of CPU time for"),
    "says_that_it_computes_nothing": (Status.CRASHED, "it carried out no parity check"),
    "stands_still_when_timed": (
        Status.PARITY_FAILED,
        "no parameter changed during the timed steps",
    ),
    "judges_itself": (Status.CRASHED, "entries of"),
}
#: The same of inference.
OF_INFERENCE = {
    "answers_from_a_cache": (Status.IMPLAUSIBLE, "GFLOP/s"),
    "answers_for_the_one_before": (Status.PARITY_FAILED, "outputs off"),
    "answers_for_half": (Status.PARITY_FAILED, "outputs off"),
    "leaves_out_a_layer": (Status.PARITY_FAILED, "outputs off"),
    "infers_in_lower_precision": (Status.PARITY_FAILED, "outputs off"),
}
#: Needs PyTorch.
OF_TORCH = {"doubled_bias": (Status.PARITY_FAILED, "update of")}
#: An honest mistake: both biases of an LSTM are trained, so that its bias moves twice as far.
DOUBLED_BIAS = """
from ..pytorch.adapter import TorchAdapter

class Adapter(TorchAdapter):
    def prepare(self, network, weights, batch):
        self._start = {name: value.copy() for name, value in weights.items() if name.endswith(".bias")}
        super().prepare(network, weights, batch)

    def reset(self, weights, batch):
        super().reset(weights, batch)
        self._start = {name: weights[name].copy() for name in self._start}

    def parameters(self):
        for name, value in super().parameters():
            # The mistake to first order: the bias stands where two trained biases would have
            # taken it.
            yield name, value if name not in self._start else 2 * value - self._start[name]

ADAPTER = Adapter
"""
WAITED = 0.1  # seconds


def attack(name, folder, like="reference", mode="float32", network=NETWORK, **options):
    """Carry out a launch of an attack, as of an adapter that a user gives."""
    chosen = (
        DOUBLED_BIAS
        if name in OF_TORCH
        else f'{ATTACKS}\n\nADAPTER = type("Attack", (Honest,), ATTACKS["{name}"])\n'
    )
    (folder / "adapter.py").write_text(chosen)
    references = {"HOSTILE_REFERENCES": str(folders.home() / "references")}
    framework = find(like).model_copy(update={"folder": f"{OUTSIDE}{name}", "directory": folder})
    return launch_once(
        framework,
        mode,
        network,
        folder,
        protocol=LONGER.get(name, PROTOCOL),
        variables=references,
        **options,
    )


#: Caught by the evidence that catches another one, which is tried in every run.
ALIKE = {
    *(
        "skips_after_the_first_steps",
        "skips_until_it_is_reset",
        "updates_the_last_layer_alone",
        "reuses_gradients",
    ),
    *(
        "reuses_gradients_of_the_same_data",
        "tells_losses_from_a_table",
        "computes_a_quarter",
        "updates_biases_alone",
    ),
    *("computes_a_quarter_when_timed", "computes_in_lower_precision", "works_ahead_in_prepare"),
    *(
        "leaves_work_unfinished",
        "answers_for_half",
        "leaves_out_a_layer",
        "infers_in_lower_precision",
    ),
}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] * (name in ALIKE))
        for name in sorted(CAUGHT | OF_INFERENCE)
    ],
)
def test_an_attack_is_caught_for_the_expected_reason(name, tmp_path):
    status, expected_reason = (CAUGHT | OF_INFERENCE)[name]
    task = TASKS[name in OF_INFERENCE]
    for attempt in range(3):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        outcome = attack(name, folder, task=task)
        # What a launch waits for a CPU beside other tests is allowed to it, and may be as much as
        # it made up.
        if (
            outcome.status is status
            or outcome.outside is None
            or outcome.outside.timed_waiting_seconds < WAITED
        ):
            break
    assert outcome.status is status, outcome.reason
    assert re.search(expected_reason, outcome.reason), outcome.reason


def beside_an_honest_one(name, folder):
    """Return the outcomes of an honest launch and of an attack that take turns, as the sides of a
    pair do."""
    turns = Turns(2, name, rounds_of(PROTOCOL, alike=True))
    members = [Member(turns, number) for number in range(2)]
    for side in ("honest", "attack"):
        (folder / side).mkdir()
    calls = [
        lambda tick: launch_once(
            find("reference"),
            "float32",
            NETWORK,
            folder / "honest",
            protocol=PROTOCOL,
            member=members[0],
        ),
        lambda tick: attack(name, folder / "attack", member=members[1]),
    ]
    return run_together(calls, turns, no_tick)


#: By evidence that turns could weaken: CPU time of processes that are stopped, and the check
#: against the timed samples. Beside other tests a clock at a quarter of its speed is within what is
#: allowed for waiting in 1.5 s of turns.
IN_TURNS = {"hides_a_helper", "skips_at_the_timed_rate"}
#: The first queues work for hours that it has to finish, until its time limit ends it. The others,
#: written for launches on their own, end without a number too, and for another reason.
NOT_FOR_TURNS = {
    *(
        "leaves_work_unfinished",
        "speaks_for_itself_to_the_host",
        "writes_its_own_outcome",
        "skips_most_steps",
    )
}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] * (name not in IN_TURNS))
        for name in sorted(CAUGHT.keys() - NOT_FOR_TURNS)
    ],
)
def test_an_attack_is_caught_in_turns_too(name, tmp_path):
    status, expected_reason = CAUGHT[name]
    for attempt in range(3):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        honest, outcome = beside_an_honest_one(name, folder)
        if (
            outcome.status is status
            or outcome.outside is None
            or outcome.outside.timed_waiting_seconds < WAITED
        ):
            break
    assert (honest.status, honest.reason) == (Status.OK, "")
    assert outcome.status is status, outcome.reason
    assert re.search(expected_reason, outcome.reason), outcome.reason


@pytest.mark.parametrize("task", TASKS)
def test_the_honest_one_is_believed(task, tmp_path):
    outcome = launch_once(
        find("reference"), "float32", NETWORK, tmp_path, protocol=PROTOCOL, task=task
    )
    assert (outcome.status, outcome.reason) == (Status.OK, "")
    assert outcome.parity.verdict == "agrees"
    assert outcome.outside.checked_steps >= 1


def test_a_check_among_others_is_carried_out_once_more(tmp_path):
    outcome = attack("slow_in_its_first_check", tmp_path)
    assert (outcome.status, outcome.reason) == (Status.OK, "")
    assert outcome.outside.checks >= 2  # other programs may slow a further one
    assert outcome.parity.verdict == "agrees"


@pytest.mark.slow
@pytest.mark.framework
@pytest.mark.parametrize("name", sorted(OF_TORCH))
def test_a_mistake_inside_a_framework_is_caught(name, tmp_path):
    outcome = attack(name, tmp_path, "torch", "eager", "lstm32", batch_size=4)
    status, expected_reason = OF_TORCH[name]
    assert outcome.status is status, outcome.reason
    assert re.search(expected_reason, outcome.reason), outcome.reason
    assert outcome.samples_ns, "a number for other mathematics is kept, and marked"


def test_every_attack_is_tried_and_listed_with_how_it_ends():
    defined = set(re.findall(r'^    "([a-z_]+)": ', ATTACKS, re.MULTILINE))
    assert defined == {*CAUGHT, *OF_INFERENCE, "slow_in_its_first_check"}
    rows = re.findall(r"^\| `([a-z_]+)` \|.*\| (.*) \|$", PARITY.read_text(), re.MULTILINE)
    listed = {
        name: status for status, attacks in rows for name in re.findall(r"`([a-z_]+)`", attacks)
    }
    assert listed == {
        name: status.value for name, (status, _) in (CAUGHT | OF_INFERENCE | OF_TORCH).items()
    }
