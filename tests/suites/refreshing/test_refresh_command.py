"""`dlbench env refresh` on an adapter of the test's own whose packages lie in a folder of wheels."""

import json
import re
import shutil

import pytest
import tiny_wheels
from processes import run_command
from suites_of_null import SMALL_NETWORK


@pytest.fixture
def refresh(tmp_path):
    """Give a function that runs the command on the adapter `tiny`, with the wheels as all that pip finds."""

    def run(*words):
        folder = f"tiny={tmp_path / 'tiny'}"
        return run_command(
            tmp_path, "env", "refresh", "--adapter", folder, *words, **tiny_wheels.of_pip(tmp_path / "wheels")
        )

    return run


@pytest.fixture
def lock(tmp_path):
    """Give the adapter's lock, on the first release of two, of which the second is as right."""
    wheels = tmp_path / "wheels"
    numpy, first = tiny_wheels.numpy_of_the_tests(wheels), tiny_wheels.tiny(wheels, "1.0")
    tiny_wheels.tiny(wheels, "2.0")
    folder = tiny_wheels.adapter(tmp_path / "tiny", tiny_wheels.line(numpy) + tiny_wheels.line(first))
    return folder / "requirements.lock"


WAITS = """
import importlib.metadata, time
from ..null.adapter import ADAPTER as Null

SECONDS = {seconds}[importlib.metadata.version("tiny")]

class Tiny(Null):
    def step(self):
        until = time.perf_counter() + SECONDS
        while time.perf_counter() < until:
            pass

ADAPTER = Tiny
"""


def computing_nothing(lock, slower=1.0):
    """Make the adapter one whose steps only last so long: it waits for no quiet machine. Return a suite's file."""
    about, code, suite = (lock.with_name(name) for name in ("framework.toml", "adapter.py", "small.toml"))
    about.write_text(about.read_text().replace("[modes.only]", "computes = false\n\n[modes.only]"))
    code.write_text(WAITS.format(seconds={"1.0": 0.004, "2.0": 0.004 * slower}))
    suite.write_text(SMALL_NETWORK)
    return str(suite)


def test_it_says_what_is_newer(refresh, lock):
    before = lock.read_text()
    done = refresh("--check", "tiny", "--json")
    assert done.returncode == 0, done.stderr
    (found,) = json.loads(done.stdout)
    assert (found["package"], found["locked"], found["newest"], found["newer"]) == ("tiny", "1.0", "2.0", True)
    assert found["why"] == "`dlbench env refresh tiny`"
    assert lock.read_text() == before


def test_a_release_that_is_held_stays_and_the_table_says_why(refresh, lock):
    about = lock.with_name("framework.toml")
    about.write_text(about.read_text() + '\n[held]\ntiny = "2.0 is wrong"\n')
    before = lock.read_text()
    done = refresh("--check", "tiny")
    assert done.returncode == 0, done.stderr
    assert re.search(r"tiny +1\.0 +2\.0 +held\n(.*\n)*tiny 2\.0: 2\.0 is wrong", done.stdout)
    done = refresh("tiny")
    assert done.returncode == 0, done.stderr
    assert "nothing is newer" in done.stderr
    assert lock.read_text() == before


@pytest.mark.slow
def test_a_new_lock_is_taken_where_parity_passes(refresh, lock, tmp_path):
    done = refresh("tiny", "--no-gate")
    assert done.returncode == 0, done.stderr
    wheels = tmp_path / "wheels"
    locked = [tiny_wheels.line(next(wheels.glob(name))) for name in ("numpy-*", "tiny-2.0-*")]
    assert lock.read_text() == "".join(locked)
    assert re.search(r"tiny +1\.0 +2\.0", done.stdout)
    assert re.search(r"attention +only +tuned +ok", done.stdout)
    again = refresh("tiny")
    assert "nothing is newer" in again.stderr


@pytest.mark.slow
def test_a_release_that_computes_something_else_leaves_the_lock(refresh, lock, tmp_path):
    tiny_wheels.tiny(tmp_path / "wheels", "3.0", "1.1")
    before = lock.read_text()
    done = refresh("tiny")
    assert done.returncode == 1, done.stderr
    assert "Parity failed: only" in done.stderr
    assert "is as it was" in done.stderr
    assert lock.read_text() == before


@pytest.mark.slow
def test_the_gate_shows_the_change_of_each_cell_and_takes_no_lock_where_that_is_asked(refresh, lock, tmp_path):
    before = lock.read_text()
    done = refresh("tiny", "--take", "never", "--suite", computing_nothing(lock))
    assert done.returncode == 0, done.stderr
    sides = re.findall(r"(?:baseline|candidate): tiny \(environment (\w+)", done.stderr)
    assert len(set(sides)) == 2
    assert re.search(r"tiny only, bound +\d+ +\d\.\d+ \(", done.stdout), done.stdout
    assert "the new lock is in" in done.stderr
    assert lock.read_text() == before


@pytest.mark.slow
def test_a_release_that_is_slower_leaves_the_lock_where_the_gate_decides(refresh, lock):
    before = lock.read_text()
    done = refresh("tiny", "--take", "gate", "--suite", computing_nothing(lock, slower=1.5))
    assert done.returncode == 1, done.stderr
    assert "REGRESSION" in done.stdout
    assert "is as it was" in done.stderr
    assert lock.read_text() == before


@pytest.mark.slow
def test_a_release_that_refuses_what_the_old_one_could_do_leaves_the_lock(refresh, lock, tmp_path):
    tiny_wheels.tiny(tmp_path / "wheels", "3.0")
    code = lock.with_name("adapter.py")
    code.write_text(
        code.read_text()
        + "\n\nclass Old(ADAPTER):\n"
        + "    def prepare(self, network, weights, batch):\n"
        + "        if importlib.metadata.version('tiny') != '1.0':\n"
        + "            raise Unsupported('this release has lost it')\n"
        + "        super().prepare(network, weights, batch)\n\n\nADAPTER = Old\n"
    )
    code.write_text("import importlib.metadata\nfrom ..base import Unsupported\n" + code.read_text())
    before = lock.read_text()
    done = refresh("tiny", "--no-gate")
    assert done.returncode == 1, done.stderr
    assert "unsupported, which the old build can do: this release has lost it" in " ".join(done.stderr.split())
    assert lock.read_text() == before


@pytest.mark.slow
def test_what_both_builds_refuse_is_no_loss(refresh, lock):
    code = lock.with_name("adapter.py")
    refusing = '    families = tuple(name for name in ReferenceAdapter.families if name != "attention")\n'
    code.write_text(
        code.read_text().replace("class Tiny(ReferenceAdapter):\n", "class Tiny(ReferenceAdapter):\n" + refusing)
    )
    done = refresh("tiny", "--no-gate")
    assert done.returncode == 0, done.stderr
    assert re.search(r"attention +only +tuned +unsupported", done.stdout)
    assert "tiny==2.0" in lock.read_text()


@pytest.mark.slow
def test_a_row_that_fails_does_not_keep_the_next_one_from_its_turn(refresh, lock):
    other = lock.parent.with_name("other")
    shutil.copytree(lock.parent, other)
    about = other / "framework.toml"
    text = (
        about.read_text()
        .replace('name = "tiny"', 'name = "other"')
        .replace('packages = ["tiny"]', 'packages = ["tiny>9"]')
    )
    about.write_text(text)
    done = refresh("other", "tiny", "--no-gate", "--adapter", f"other={other}")
    assert done.returncode == 3, done.stderr
    assert "No set of packages can be resolved for tiny>9" in done.stderr
    assert "tiny-2.0" in lock.read_text() or "tiny==2.0" in lock.read_text()


def test_a_package_that_the_lock_lacks_is_newer(refresh, lock):
    about = lock.with_name("framework.toml")
    about.write_text(about.read_text().replace('packages = ["tiny"]', 'packages = ["tiny", "numpy"]'))
    lock.write_text("".join(line for line in lock.read_text().splitlines(True) if "numpy" not in line))
    found = json.loads(refresh("--check", "tiny", "--json").stdout)
    assert [(each["package"], each["newer"]) for each in found] == [("tiny", True), ("numpy", True)]


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["caffe"], 2, "caffe cannot be refreshed: it has no locked Python packages."),
        (["torch7"], 2, "torch7 cannot be refreshed: it is not available"),
        (["tinny"], 2, "There is no framework named 'tinny'. Did you mean 'tiny'?"),
        (["tiny", "--take", "always"], 2, "always"),
        (["tiny", "--take", "gate", "--no-gate"], 2, "--take gate needs the gate"),
        (["tiny", "--json"], 2, "--json is for --check"),
        (["tiny", "--suite", "nosuch"], 2, "There is no suite named 'nosuch'"),
    ],
)
def test_what_cannot_be_asked_is_refused_in_a_line(refresh, lock, words, code, told):
    done = refresh(*words)
    assert (done.returncode, told in done.stderr) == (code, True), done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("words", [["--check"], []])
def test_an_adapter_without_a_lock_is_told_so(refresh, lock, words):
    lock.unlink()
    done = refresh("tiny", *words)
    told = " ".join((done.stdout + done.stderr).split())
    assert (done.returncode, "requirements.lock cannot be read: No such file or directory" in told) == (2, True), told
    assert "Traceback" not in done.stderr


def test_packages_that_are_no_requirements_are_refused(refresh, lock):
    about = lock.with_name("framework.toml")
    about.write_text(about.read_text().replace('packages = ["tiny"]', 'packages = ["tiny >"]'))
    done = refresh("tiny", "--check")
    assert (done.returncode, "'tiny >' is no requirement" in done.stderr) == (2, True), done.stderr


def test_a_release_that_framework_toml_does_not_ask_for_is_told(refresh, lock):
    about = lock.with_name("framework.toml")
    about.write_text(about.read_text().replace('packages = ["tiny"]', 'packages = ["tiny<2"]'))
    (found,) = json.loads(refresh("--check", "tiny", "--json").stdout)
    assert (found["newer"], found["why"]) == (True, "framework.toml asks for tiny<2")
    tiny_wheels.tiny(lock.parent.with_name("wheels"), "1.5")
    (found,) = json.loads(refresh("--check", "tiny", "--json").stdout)
    assert found["why"] == "`dlbench env refresh tiny` takes 1.5: framework.toml asks for tiny<2"


def test_a_lock_in_another_order_whose_releases_are_the_newest_stays(refresh, lock):
    wheels = lock.parent.with_name("wheels")
    numpy, newest = (tiny_wheels.line(next(wheels.glob(name))) for name in ("numpy-*", "tiny-2.0-*"))
    lock.write_text(f"{newest}\n# by hand\n{numpy}")
    before = lock.read_text()
    done = refresh("tiny")
    assert (done.returncode, "nothing is newer" in done.stderr) == (0, True), done.stderr
    assert lock.read_text() == before


@pytest.mark.slow
def test_an_index_that_lacks_the_package_or_has_no_set_is_told_and_the_lock_stays(refresh, lock, tmp_path):
    before = lock.read_text()
    tiny_wheels.tiny(tmp_path / "wheels", "3.0", requires=("numpy>=9",))
    about = lock.with_name("framework.toml")
    about.write_text(about.read_text().replace('packages = ["tiny"]', 'packages = ["tiny>2.5"]'))
    done = refresh("tiny")
    assert done.returncode == 3
    assert "No set of packages can be resolved for tiny>2.5" in done.stderr
    assert "is as it was" in done.stderr
    for path in (tmp_path / "wheels").iterdir():
        path.unlink()
    done = refresh("--check", "tiny", "--json")
    assert json.loads(done.stdout)[0]["why"] == "no release for this Python"
    assert lock.read_text() == before
