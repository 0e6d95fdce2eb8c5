"""A guest's answer is believed in nothing: whatever stands in it, it is read whole or refused in
one line."""

import copy
import json
import os
from typing import get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st
from processes import null_order
from properties import examples
from pydantic import TypeAdapter

from dlbench.adapters.protocol import (
    OUTCOME_FILE,
    PHASE_FILE,
    SCHEMA_VERSION,
    Answer,
    Contention,
    Parity,
    Status,
    ThreadEvidence,
    to_dict,
)
from dlbench.reports.results.outcome import HostFacts, HostObservation, LaunchVerdict, Outcome
from dlbench.suites.run.answers import UnreadableError, read_answer, read_phase
from dlbench.suites.run.launcher import Launched, launched_of

HONEST = Answer(
    Status.OK,
    import_seconds=0.1,
    prepare_seconds=0.2,
    first_step_seconds=0.3,
    warmup_ns=[5, 6],
    samples_ns=[1000, 2000],
    final_loss=-0.5,
    final_loss_finite=True,
    peak_memory_bytes=10**9,
    threads=ThreadEvidence(1, 1, 1, 0.1, 0.1, [0.1]),
    contention=Contention(0.0, 0, 0, 0.0, 0.0, None, None, 0),
    software={"framework": "x", "version": "1", "deep": {"a": [1, {"b": None}]}},
    evidence_steps=2,
    timed_between=[1.0, 2.0],
)
AGREES = Parity("agrees", "", [1.0], 0.0, 0.0, "", 1.0, 1.0, 0.0)


def reported(**changes):
    return {**to_dict(HONEST), "schema_version": SCHEMA_VERSION, **changes}


def read(folder, content, **options):
    text = content if isinstance(content, str) else json.dumps(content)
    (folder / "outcome.json").write_text(text)
    return read_answer(folder, null_order(folder).launch, **options)


class Unseen:
    """A monitor that saw what fits the honest answer."""

    wrong, timed_steps, turns = "", HONEST.observed_steps(), None

    def observation(self):
        return HostObservation(0.1, 0.1)


@pytest.mark.parametrize(
    ("phase", "status"), [("training, step 5 of 9", Status.OK), ("timed", Status.TIMED_OUT)]
)
def test_a_timeout_after_the_measurement_keeps_its_samples(phase, status, tmp_path):
    (tmp_path / "outcome.json").write_text(json.dumps(reported()))
    (tmp_path / "phase.json").write_text(json.dumps({"phase": phase, "expected_seconds": None}))
    late = Status.TIMED_OUT, "ended after 5 s"
    assert (
        launched_of(null_order(tmp_path).launch, tmp_path, Unseen(), -15, ended=late).verdict.status
        is status
    )


def test_an_honest_answer_is_read_as_it_was_meant(tmp_path):
    assert read(tmp_path, reported()) == HONEST


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"samples_ns": [-5]}, "out of range"),
        ({"samples_ns": [10**31]}, "out of range"),
        ({"samples_ns": "fast"}, "samples_ns"),
        ({"samples_ns": []}, "there must be one at least"),
        ({"samples_ns": [1] * 10_000, "evidence_steps": 10_000}, "were asked for"),
        ({"steps_per_sample": 0}, "there must be one at least"),
        ({"calls_ns": [1]}, "under a CPU quota alone"),
        ({"reason": "x" * 10**6}, "reason"),
        ({"final_loss": True}, "final_loss"),
        ({"status": "parity_failed"}, "is reserved for the host"),
        ({"evidence_steps": 1}, "2 steps timed of 1 observed"),
        ({"threads": {**reported()["threads"], "requested": 3}}, "where 1 were asked for"),
        ({"threads": {**reported()["threads"], "cpu_seconds": -1.0}}, "out of range"),
        ({"parameter_count": 12}, "parameters, where the network has"),
        ({"parity": to_dict(AGREES)}, "key parity: unknown key"),
        ({"outside": to_dict(HostObservation(1.0, 1.0))}, "key outside: unknown key"),
        ({"paused_ns": [5]}, "key paused_ns: unknown key"),
        ({"colour": "red"}, "unknown key"),
        ({"software": {"a": "x" * 5_000_000}}, "software"),
        ({"software": {"a": json.loads("[" * 30 + "]" * 30)}}, "nested deeper"),
        ({"schema_version": 2}, "schema version 2"),
    ],
)
def test_a_wrong_answer_is_refused_with_the_reason(changes, complaint, tmp_path):
    with pytest.raises(UnreadableError) as error:
        read(tmp_path, reported(**changes))
    assert complaint in str(error.value)


def test_an_answer_of_an_earlier_revision_has_empty_keys_of_the_host(tmp_path):
    empty = {"parity": None, "outside": None, "statistics": None, "paused_ns": []}
    assert read(tmp_path, reported(**empty)) == HONEST


def test_an_outcome_has_the_fields_of_an_answer_and_those_of_the_host():
    """What a guest measures has one type and one default on both sides."""
    of_guest, of_record = get_type_hints(Answer), get_type_hints(Outcome)
    shared = of_guest.keys() & of_record.keys()
    assert of_guest.keys() - shared == {"parity_sample", "starts_ns"}  # for the host to use
    assert of_record.keys() - shared == {"parity", "outside", "paused_ns", "statistics"}
    for name in shared:
        # List[int] of Python 3.6 is list[int] here.
        schemas = [TypeAdapter(hints[name]).json_schema() for hints in (of_guest, of_record)]
        assert schemas[0] == schemas[1], name
        assert Answer._field_defaults.get(name) == Outcome._field_defaults.get(name), name


def test_an_outcome_is_made_of_the_answer_the_observation_and_the_verdict():
    outside = HostObservation(3.0, 3.0)
    launched = Launched(LaunchVerdict(Status.OK), 9.0, HONEST, outside, [1, 0], started=7.0)
    judged = launched.outcome(LaunchVerdict(Status.PARITY_FAILED, "off", AGREES))
    assert (judged.status, judged.reason, judged.parity) == (Status.PARITY_FAILED, "off", AGREES)
    assert (judged.outside, judged.paused_ns) == (outside, [1, 0])
    assert judged.phases == {"start": 7.0}
    for name in HONEST._fields:
        if name not in ("status", "reason", "phases", "parity_sample", "starts_ns"):
            assert getattr(judged, name) == getattr(HONEST, name), name


@pytest.mark.parametrize("key", HostFacts._fields)
def test_a_guest_cannot_state_facts_of_the_host(key):
    answer = HONEST._replace(software={"framework": "x", key: True})
    assert Launched(LaunchVerdict(Status.OK), answer=answer).outcome().software == {
        "framework": "x"
    }


@pytest.mark.parametrize(
    ("calls", "complaint"),
    [
        ([20, 30, 25, 25], ""),
        ([20, 30, 25], "3 calls in 2 samples of 2"),
        ([20, 30, 1, 1], "those of sample 1 take 2 ns, and the sample 50 ns"),
        ([20, 31, 25, 25], "those of sample 0 take 51 ns, and the sample 50 ns"),
    ],
)
def test_single_calls_must_fit_into_their_samples(calls, complaint, tmp_path):
    order = null_order(tmp_path, task="inference", cpu_quota=0.5)
    changes = {
        "samples_ns": [50, 50],
        "steps_per_sample": 2,
        "evidence_steps": 4,
        "calls_ns": calls,
    }
    (tmp_path / OUTCOME_FILE).write_text(json.dumps(reported(**changes)))
    if not complaint:
        assert read_answer(tmp_path, order.launch).calls_ns == calls
        return
    with pytest.raises(UnreadableError, match=complaint):
        read_answer(tmp_path, order.launch)


@pytest.mark.parametrize("name", [OUTCOME_FILE, PHASE_FILE])
@pytest.mark.parametrize(
    ("leave", "complaint"),
    [
        (os.mkfifo, "not a plain file"),
        (os.mkdir, "not a plain file"),
        (lambda path: path.symlink_to("/etc/passwd"), "not a plain file"),
        (lambda path: os.truncate(path.open("w").name, 2**30), "bytes, more than"),
        (lambda path: path.write_bytes(b"\377\376"), "not valid JSON"),
        (lambda path: path.write_text(""), "not valid JSON"),
        (lambda path: path.write_text("[" * 100_000), "nested too deeply"),
        (lambda path: path.write_text('{"final_loss": NaN}'), "NaN"),
        (lambda path: path.write_text("[]"), "not a JSON object"),
        (
            lambda path: path.write_text('{"phase": [1], "expected_seconds": 1e999}'),
            "schema version None",
        ),
    ],
)
def test_whatever_lies_where_a_file_is_expected_is_refused(name, leave, complaint, tmp_path):
    leave(tmp_path / name)
    if name == PHASE_FILE:
        assert read_phase(tmp_path) == ("", None)
        return
    with pytest.raises(UnreadableError, match=complaint):
        read_answer(tmp_path, null_order(tmp_path).launch)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)


def places(value, path=()):
    yield path
    inner = ()
    if isinstance(value, dict):
        inner = value.items()
    elif isinstance(value, list):
        inner = enumerate(value)
    for key, member in inner:
        yield from places(member, (*path, key))


@examples(200)
@given(place=st.sampled_from(sorted(places(reported()), key=str)), value=JSON, remove=st.booleans())
def test_whatever_stands_in_an_answer_it_is_read_or_refused_in_one_line(
    place, value, remove, tmp_path_factory
):
    content = copy.deepcopy(reported())
    where = content
    for key in place[:-1]:
        where = where[key]
    if not place:
        content = value
    elif remove:
        del where[place[-1]]
    else:
        where[place[-1]] = value
    complaint, outcome = "", None
    try:
        outcome = read(tmp_path_factory.mktemp("answer"), content)
    except UnreadableError as error:
        complaint = str(error)
    assert (outcome is None) == bool(complaint)
    assert "\n" not in complaint
    assert outcome is None or outcome.status in (
        Status.OK,
        Status.UNSUPPORTED,
        Status.CRASHED,
        Status.OUT_OF_MEMORY,
    )


@pytest.mark.parametrize(
    ("curve", "ended", "fits"),
    [
        ([[50, 3.0], [100, 2.5], [120, 2.4]], "", True),
        ([[50, 3.0]], "the loss was not finite", True),
        ([], "it crashed", True),
        ([], "", False),
        ([[50, 3.0], [100, 2.5]], "", False),
        ([[50, 3.0], [99, 2.5], [120, 2.4]], "", False),
        ([[50, 3.0], [100, 2.5], [120, 2.4], [150, 2.3]], "", False),
        ([[50, 3.0], [100], [120, 2.4]], "", False),
    ],
)
def test_a_curve_has_the_blocks_that_were_asked_for(tmp_path, curve, ended, fits):
    launch = null_order(tmp_path).launch
    with_curve = launch._replace(
        text="text.bin", protocol=launch.protocol._replace(curve_steps=120)
    )
    (tmp_path / "outcome.json").write_text(json.dumps(reported(curve=curve, curve_ended=ended)))
    if fits:
        assert read_answer(tmp_path, with_curve).curve == curve
    else:
        with pytest.raises(UnreadableError, match="where 3 were asked for"):
            read_answer(tmp_path, with_curve)
    if curve:
        with pytest.raises(UnreadableError, match="where 0 were asked for"):
            read_answer(tmp_path, launch)


@pytest.mark.parametrize(
    ("losses", "loss_steps", "fits"),
    [
        ([[10, 2.0], [20, 1.5]], 20, True),
        ([[10, 2.0]], 20, True),  # it was not finite later
        ([], 20, True),
        ([[10, 2.0], [10, 1.5]], 20, False),
        ([[10, 2.0], [30, 1.5]], 20, False),
        ([[10]], 20, False),
        ([[10, 2.0]], 0, False),
    ],
)
def test_losses_are_of_the_further_steps_that_were_asked_for(tmp_path, losses, loss_steps, fits):
    launch = null_order(tmp_path).launch
    launch = launch._replace(protocol=launch.protocol._replace(loss_steps=loss_steps))
    (tmp_path / "outcome.json").write_text(json.dumps(reported(losses=losses)))
    if fits:
        assert read_answer(tmp_path, launch).losses == losses
    else:
        with pytest.raises(UnreadableError, match="losses of further steps"):
            read_answer(tmp_path, launch)
