"""What the tests of each framework start from: its interpreter, asked by statements."""

from collections.abc import Callable
from pathlib import Path

import pytest
from inside import Guest, guest_of

from dlbench.suites.planning.framework import find

#: What every question of a framework has imported where it is not the framework by its own name.
IMPORTS = {
    # The compiler is imported by the first update of parameters otherwise, in every question anew.
    "torch": "import torch, torch._dynamo",
    "tensorflow": "import tensorflow as tf",
    # It does no more threads than the CPUs that it is bound to, and has no other word for it.
    "mindspore": "import mindspore, os\nos.sched_setaffinity(0, [min(os.sched_getaffinity(0))])",
    "mxnet": "import mxnet as mx",
    "onnx": "import onnxruntime\nfrom guest.onnx import gradients",
    "onnxruntime": "from guest.libraries.onnx_graphs import permute_gates",
    "reference": "",
    "mlx": "import mlx.core as mx",
    "theano": "",
}


@pytest.fixture
def guests(framework_python: Callable[[str], Path], tmp_path: Path) -> Callable[..., Guest]:
    """Give a function that returns the one that runs statements in a framework's interpreter.

    It takes the framework's name, a mode where it is not the default one, whose variables are set,
    further statements that import what every question needs, and further variables.
    """

    def guest(
        name: str, mode: str = "", imports: str = "", scratch: Path = tmp_path, **variables: str
    ) -> Guest:
        framework, interpreter = find(name), framework_python(name)
        chosen = mode or framework.default_mode
        always = framework.launch_variables(chosen, 1, interpreter.parent.parent) | variables
        beginning = f"{IMPORTS.get(name, f'import {name}')}\n{imports}"
        return guest_of(interpreter, scratch, name, framework.folder, chosen, beginning, **always)

    return guest


@pytest.fixture
def guest(request: pytest.FixtureRequest, guests: Callable[..., Guest]) -> Guest:
    """Give the one of the framework that the test file is about."""
    return guests(request.module.FRAMEWORK)
