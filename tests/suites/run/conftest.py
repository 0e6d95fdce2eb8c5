"""What tests of measuring start from."""

import pytest


@pytest.fixture(scope="module")
def home_of_module(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DLBENCH_HOME", str(tmp_path_factory.mktemp("home")))
        yield
