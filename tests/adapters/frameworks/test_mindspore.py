"""What is particular to MindSpore, shown by the guest in MindSpore's own interpreter, which is bound to one CPU."""

import asked_of_frameworks as asked
import pytest
from inside import Guest

pytestmark = pytest.mark.framework

FRAMEWORK = "mindspore"


def test_threads_are_the_cpus_that_it_is_bound_to(guest: Guest) -> None:
    said = guest("""
        from guest.launch import contract
        answer = [contract.supports(make("small-dense", threads=threads), SMALL["small-dense"])
                  for threads in (0, 1, 2)]
    """)
    asked.check_reasons(said, ["", "", "--affinity bound"])


def test_loops_too_long_to_unroll_are_refused(guest: Guest) -> None:
    said = guest("""
        gru = SMALL["one-hot-gru"]
        answer = []
        for layers, steps, cell in ((2, 50, "gru"), (3, 50, "gru"), (1, 101, "rnn"), (3, 500, "lstm")):
            family = gru.family._replace(layers=layers, steps=steps, cell=cell)
            answer.append(make("one-hot-gru").supports(gru._replace(family=family)))
    """)
    asked.check_reasons(said, ["", "3 layers of 50 steps", "1 layers of 101 steps", ""])
