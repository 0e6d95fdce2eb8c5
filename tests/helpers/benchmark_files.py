"""Files of pytest-benchmark: ours and somebody else's."""

import copy
import json

from factory_of_records import cell, outcome, parity, record, run
from hypothesis import strategies as st

from dlbench.adapters.protocol import Status

# What a launch may give; final_loss_finite and the parity verdict decide whether it may be shown.
OUTCOMES = st.builds(
    lambda samples, steps, verdict, finite, status: outcome(
        [ns * 1e-9 for ns in samples],
        samples_ns=samples,
        steps_per_sample=steps,
        parity=parity(verdict),
        final_loss_finite=finite,
        status=status,
        reason="" if status is Status.OK else "a reason",
    ),
    st.lists(st.integers(1, 10**12), min_size=1, max_size=5),
    st.sampled_from([1, 1, 3, 1000]),
    st.sampled_from(["agrees", "agrees", "unchecked"]),
    st.sampled_from([True, True, True, False, None]),
    st.sampled_from([Status.OK, Status.OK, Status.OK, Status.CRASHED, Status.PARITY_FAILED, Status.TIMED_OUT]),
)


@st.composite
def runs_with_records(draw):
    counts = draw(st.lists(st.integers(1, 64), min_size=1, max_size=3, unique=True))
    cells = [cell(threads=count) for count in counts]
    records = [
        record(launch=launch, result=draw(OUTCOMES), threads=each.threads, minutes=launch + each.threads / 100)
        for launch in range(draw(st.integers(1, 3)))
        for each in cells
    ]
    return run(plan=tuple(cells)), records


def written(tmp_path, text):
    path = tmp_path / "file.json"
    path.write_text(text if isinstance(text, str) else json.dumps(text), encoding="utf-8")
    return path


def foreign(**changes):
    """A file as plain pytest-benchmark writes it."""
    benchmark = {
        "group": None,
        "name": "test_sum[10]",
        "fullname": "tests/test_mine.py::test_sum[10]",
        "params": {"n": 10},
        "param": "10",
        "extra_info": {"who": "me"},
        "options": {"timer": "perf_counter"},
        "stats": {"median": 2e-6, "data": [1e-6, 2e-6, 3.25e-6], "iterations": 100, "rounds": 3},
    }
    return {
        "machine_info": {
            "node": "secret-host",
            "machine": "x86_64",
            "system": "Linux",
            "python_implementation": "CPython",
            "python_implementation_version": "3.12.1",
            "cpu": {"brand_raw": "A CPU", "count": 4, "hz_actual": [3_000_000_000, 0]},
        },
        "commit_info": {"id": "abc", "dirty": False, "project": "mine"},
        "benchmarks": [benchmark],
        "datetime": "2026-03-01T12:00:00",
        "version": "5.1.0",
        **changes,
    }


def without(content, *keys):
    place = changed = copy.deepcopy(content)
    for key in keys[:-1]:
        place = place[key]
    del place[keys[-1]]
    return json.dumps(changed)


DATA = "benchmarks", 0, "stats", "data"
