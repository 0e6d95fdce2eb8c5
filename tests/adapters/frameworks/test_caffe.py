"""What is particular to Caffe, shown by the guest in Caffe's own interpreter."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from known_networks import NETWORKS, data_of

from dlbench.adapters.protocol import Cell, Launch, Protocol, Status
from dlbench.suites.planning.framework import find
from dlbench.suites.run.launcher import LaunchRequest, launch_process

pytestmark = pytest.mark.framework

FRAMEWORK = "caffe"


def test_a_failed_check_is_an_outcome_with_caffes_words(
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
    outcome = launch_process(LaunchRequest(launch, limited, variables, 300.0)).outcome
    assert outcome.status in (Status.CRASHED, Status.OUT_OF_MEMORY)
    if outcome.status is Status.CRASHED:
        assert "host allocation of size" in outcome.reason, outcome.reason
