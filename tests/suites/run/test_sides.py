"""The two sides of a comparison, from the words of the command line."""

import sys
from pathlib import Path

import pytest

from dlbench.reports.results.record import BASELINE, CANDIDATE
from dlbench.suites.environments.digests import adapter_digest
from dlbench.suites.errors import UsageError
from dlbench.suites.planning import framework, own, variables
from dlbench.suites.planning.framework import GUEST_DIRECTORY
from dlbench.suites.run import sides

PYTHON = sys.executable
NOTHING = ((), ())
NO_REVISIONS = ("", "")


def pair(python=(), baseline=(), environments=NOTHING, revisions=NO_REVISIONS):
    return sides.pair((baseline, python), environments, revisions)


@pytest.mark.parametrize(
    ("python", "before", "baselines", "candidates"),
    [
        (
            ["torch", "torch-next:torch"],
            [],
            ["torch"],
            ["torch-next"],
        ),  # of two the first is the baseline's
        (["torch"], [], [], ["torch"]),
        ([], ["torch"], ["torch"], []),
    ],
)
def test_which_side_an_interpreter_is_of(python, before, baselines, candidates) -> None:
    candidate_words = [f"{name}={PYTHON}" for name in python]
    baseline_words = [f"{name}={PYTHON}" for name in before]
    sides = pair(candidate_words, baseline_words)
    assert [side.name for side in sides] == [BASELINE, CANDIDATE]
    assert [[build.name for build in side.builds] for side in sides] == [baselines, candidates]


@pytest.mark.parametrize("word", ["", "A", "=1", "1A=2", "A B=1", "Ä=1", "A=\0", "A-B=1"])
def test_words_that_set_no_variable_are_refused(word) -> None:
    with pytest.raises(UsageError, match=r"NAME=VALUE|NUL byte"):
        variables.read([word])


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ({"python": [f"torch={PYTHON}"] * 3}, "two sides"),
        (
            {"python": [f"torch={PYTHON}", f"n:torch={PYTHON}"], "baseline": [f"torch={PYTHON}"]},
            "Leave one out",
        ),
        ({"revisions": ("no-such-revision", "")}, "no revision"),
        ({"revisions": ("--help", "")}, "no revision"),
    ],
)
def test_words_that_cannot_be_meant(words, complaint) -> None:
    with pytest.raises(UsageError, match=complaint):
        pair(**words)


@pytest.mark.parametrize("words", [{}, {"environments": (["A=1"], ["A=1"])}])
def test_sides_that_do_not_differ_are_refused(words) -> None:
    with pytest.raises(UsageError, match="Both sides are the same"):
        sides.check_sides_differ(pair(**words))


def test_sides_of_two_variables_differ() -> None:
    sides.check_sides_differ(pair(environments=(["A=1"], ["A=2"])))


@pytest.fixture
def steps(tmp_path, monkeypatch):
    """Give a function that writes a training step of this text and returns its file; the first is
    the row's own."""
    monkeypatch.setattr(framework, "_added", {})

    def write(name: str, text: str) -> str:
        (tmp_path / name).write_text(text)
        if not framework._added:
            own.register_steps([str(tmp_path / name)])
        return str(tmp_path / name)

    return write


def test_files_of_one_content_are_the_same_side_whatever_their_names(steps) -> None:
    steps("mine.py", "def prepare(cell): ...")
    mine = framework.find("mine")
    alike, different = (
        steps("alike.py", "def prepare(cell): ..."),
        steps("other.py", "def prepare(cell): return None"),
    )
    two_sides = sides.pair(((), ()), NOTHING, NO_REVISIONS, (None, alike), mine)
    with pytest.raises(UsageError, match="Both sides are the same"):
        sides.check_sides_differ(two_sides, mine)
    _, candidate = two_sides = sides.pair(((), ()), NOTHING, NO_REVISIONS, (None, different), mine)
    sides.check_sides_differ(two_sides, mine)
    assert candidate.step is not None
    assert (
        adapter_digest(mine)
        == adapter_digest(own.read_step(alike))
        != adapter_digest(candidate.step)
    )


def test_a_gate_of_a_step_has_an_interpreter_on_each_side(steps) -> None:
    steps("mine.py", "def prepare(cell): ...")
    two_sides = pair([f"mine={PYTHON}"], [f"mine={PYTHON}"])
    assert [[build.name for build in side.builds] for side in two_sides] == [["mine"], ["mine"]]


def test_files_of_one_content_in_two_folders_may_import_what_differs(steps, tmp_path) -> None:
    text = "import beside\ndef prepare(cell): return beside.prepare(cell)"
    steps("mine.py", text)
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "mine.py").write_text(text)
    files = (None, str(tmp_path / "new" / "mine.py"))
    two_sides = sides.pair(((), ()), NOTHING, NO_REVISIONS, files, framework.find("mine"))
    assert two_sides[1].step is not None
    sides.check_sides_differ(two_sides, framework.find("mine"))


def test_a_revision_of_the_adapters_is_unpacked_once(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("DLBENCH_HOME", str(tmp_path))
    if sides.git(GUEST_DIRECTORY, "rev-parse", "HEAD") is None:
        pytest.skip("the adapters do not lie in a git checkout here")
    folder = sides.guest_at("HEAD")
    assert (folder / "__main__.py").is_file()
    assert folder.is_relative_to(tmp_path)
    (folder / "mark").touch()
    assert (sides.guest_at("HEAD") / "mark").exists()
    assert [entry.name for entry in folder.parent.iterdir()] == [folder.name]


def test_adapters_outside_a_checkout_have_no_revisions(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(sides, "GUEST_DIRECTORY", Path(tmp_path))
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    with pytest.raises(UsageError, match="git checkout"):
        sides.guest_at("HEAD")
