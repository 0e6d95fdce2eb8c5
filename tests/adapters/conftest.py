"""What the tests of each framework start from: its interpreter, asked by statements."""

from collections.abc import Callable
from pathlib import Path

import pytest
from inside import Guest, guest_of

from dlbench.suites.planning.framework import find


@pytest.fixture
def guests(framework_python: Callable[[str], Path], tmp_path: Path) -> Callable[..., Guest]:
    """Give a function that returns the one that runs statements in a framework's interpreter.

    It takes the framework's name, statements that import what every question needs, and environment variables; ``mode``
    is the framework's default one.
    """

    def guest(name: str, imports: str = "", mode: str = "", scratch: Path = tmp_path, **variables: str) -> Guest:
        framework = find(name)
        chosen = mode or framework.default_mode
        return guest_of(framework_python(name), scratch, name, framework.folder, chosen, imports, **variables)

    return guest
