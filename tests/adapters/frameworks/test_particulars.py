"""What is particular to one framework, shown in its own interpreter; each test has its name."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import asked_of_frameworks as asked
import pytest
from inside import Guest
from known_networks import NETWORKS, data_of

from dlbench.adapters.protocol import Cell, Launch, Protocol, Status
from dlbench.suites.planning.framework import find
from dlbench.suites.run.launcher import LaunchRequest, launch_process

pytestmark = pytest.mark.framework

Guests = Callable[..., Guest]


def test_products_of_theano_go_to_the_openblas_of_numpys_wheel(guests: Guests) -> None:
    linked, operations = guests("theano")("""
        adapter = prepared("small-convolutional")
        adapter.step()
        from guest.theano import adapter as configuration
        name = os.path.basename(configuration.blas.openblas_of_numpy()).encode()
        paths = {line.split()[-1] for line in open("/proc/self/maps") if "compiledir" in line and ".so" in line}
        answer = sum(name in open(path, "rb").read() for path in paths), adapter._operations()
    """)
    assert linked >= 1
    # None is left to Python.
    assert {"CorrMM", "CorrMM_gradWeights", "CorrMM_gradInputs"} <= set(operations)
    assert not any(name.startswith("AbstractConv") for name in operations)
    assert "Dot" not in operations


def test_threads_are_the_word_of_cntk_and_no_more_than_there_are_cpus(guests: Guests) -> None:
    """What was asked for and not given is seen in the framework's word."""
    output, cpus = guests("cntk")("""
        answer = [make("small-dense", threads=n).effective_threads() for n in (1, 2, 4096)]
        answer = answer, len(os.sched_getaffinity(0))
    """)
    assert output == [min(threads, cpus) for threads in (1, 2, 4096)]


def test_openblas_of_mlx_is_refused_where_none_was_loaded(guests: Guests) -> None:
    """As where an interpreter is brought, which has no environment to load a library from."""
    program = """
        answer = [make("small-dense", **settings).supports(SMALL["small-dense"])
                  for settings in ({}, {"blas": "openblas"})]
    """
    without_library = guests("mlx", LD_PRELOAD="")(program)
    asked.check_reasons(without_library, ["", "no OpenBLAS was loaded before MLX"])
    asked.check_reasons(guests("mlx")(program), ["", ""])


def test_kernels_of_tinygrad_are_kept_for_the_next_process(guests: Guests, tmp_path: Path) -> None:
    guest = guests("tinygrad")
    program = """
        import shutil, stat, sqlite3
        from tinygrad import helpers
        from guest.libraries import software
        {change}
        adapter = prepared("small-dense")
        adapter.step(); adapter.synchronize()
        cache, count = sqlite3.connect(helpers.CACHEDB), 0
        named = "SELECT name FROM sqlite_master WHERE name LIKE 'compile_%'"
        for (table,) in cache.execute(named).fetchall():
            count += cache.execute("SELECT count(*) FROM '%s'" % table).fetchone()[0]
        answer = helpers.CACHEDB, count
    """
    path, count = guest(program.format(change=""))
    assert Path(path).is_relative_to(tmp_path)
    assert count
    assert guest(program.format(change="")) == [path, count]
    assert (
        guest(program.format(change='software.compiler = lambda command: ("another clang", "")'))[0]
        != path
    )


def test_threads_of_mindspore_are_the_cpus_that_it_is_bound_to(guests: Guests) -> None:
    output = guests("mindspore")("""
        from guest.launch import contract
        answer = [contract.supports(make("small-dense", threads=threads), SMALL["small-dense"])
                  for threads in (0, 1, 2)]
    """)
    asked.check_reasons(output, ["", "", "--affinity bound"])


def test_loops_of_mindspore_too_long_to_unroll_are_refused(guests: Guests) -> None:
    output = guests("mindspore")("""
        gru = SMALL["one-hot-gru"]
        answer = []
        for layers, steps, cell in ((2, 50, "gru"), (3, 50, "gru"), (1, 101, "rnn"), (3, 500, "lstm")):
            family = gru.family._replace(layers=layers, steps=steps, cell=cell)
            answer.append(make("one-hot-gru").supports(gru._replace(family=family)))
    """)
    asked.check_reasons(output, ["", "3 layers of 50 steps", "1 layers of 101 steps", ""])


def test_a_failed_check_is_an_outcome_with_the_words_of_caffe(
    framework_python: Callable[[str], Path], tmp_path: Path
) -> None:
    """Caffe ends its process where it cannot go on; here because it may have no more memory."""
    framework, network = find("caffe"), "fcn5"
    limited = tmp_path / "limited"
    limited.write_text(f'#!/bin/sh\nulimit -v 1700000\nexec {framework_python("caffe")} "$@"\n')
    limited.chmod(0o755)
    cell = Cell("caffe", "caffe", "pthread", network, "cpu", 1, NETWORKS[network].batch_size)
    launch = Launch(cell, Protocol(), {}, str(tmp_path), network=data_of(network))
    variables: dict[str, Any] = framework.launch_variables("pthread", 1)
    outcome = launch_process(LaunchRequest(launch, limited, variables, 300.0)).outcome()
    assert outcome.status in (Status.CRASHED, Status.OUT_OF_MEMORY)
    if outcome.status is Status.CRASHED:
        assert "host allocation of size" in outcome.reason, outcome.reason
