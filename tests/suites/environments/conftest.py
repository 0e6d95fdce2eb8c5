"""What tests of Debian environments start from: a mirror, and a framework of its packages."""

import pytest
from debian_mirror import Mirror, make_key
from debian_recipe import Recipe


@pytest.fixture(scope="session")
def key(tmp_path_factory):
    return make_key(tmp_path_factory.mktemp("key"))


@pytest.fixture
def mirror(tmp_path, key) -> Mirror:
    """Give a mirror with three packages, one of them with an epoch and one with a program that runs as its owner."""
    made = Mirror(tmp_path / "mirror", key[1], key[0])
    made.add("tiny-a")
    made.add("tiny-b", "1:2.0")
    made.add("tiny-c")
    made.publish()
    return made


@pytest.fixture
def recipe(tmp_path, mirror) -> Recipe:
    return Recipe(tmp_path, mirror)
