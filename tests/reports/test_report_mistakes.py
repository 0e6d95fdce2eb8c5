"""Mistakes in calls of `dlbench report`; what it prints of workers the kept outputs say."""

from functools import partial

import factory_of_records as make
import pytest

from dlbench.reports.storage.store import Store


@pytest.fixture
def call(command):
    """Give a function that runs `dlbench report` in an empty folder: exit code, output, complaints."""
    return partial(command, "report")


def test_mistakes_are_said_before_anything_is_read(call):
    mistakes = {("--plot", "scaling.pdf"): 2, ("--format", "html"): 2, (): 4, ("--store", "missing.sqlite"): 4}
    for words, expected in mistakes.items():
        code, out, err = call("scaling", *words)
        assert code == expected == call("figure1", *words)[0], words
        assert out == ""
        assert len(err.strip().splitlines()) <= 3
    with Store.open("dlbench.sqlite") as store:
        store.append(make.record(world_size=2))
    code, _, err = call("scaling", "--run", "another")
    assert code == 2
    assert "--run another" in err
