"""`dlbench env refresh` on an adapter of the test's own whose packages lie in a folder of wheels."""

import json
import re
import shutil

import pytest
import tiny_wheels
from processes import run_command


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
    assert re.search(r"tiny +1\.0 +2\.0 +held: 2\.0 is wrong", done.stdout)
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
    # What computes nothing waits for no quiet machine.
    about, code = (lock.with_name(name) for name in ("framework.toml", "adapter.py"))
    about.write_text(about.read_text().replace("[modes.only]", "computes = false\n\n[modes.only]"))
    code.write_text("from ..null.adapter import ADAPTER as Null\n\nclass Tiny(Null): pass\n\nADAPTER = Tiny\n")
    suite = tmp_path / "small.toml"
    suite.write_text(
        'name = "small"\nsummary = "s"\nnetworks = ["mine"]\nframeworks = ["null"]\nthreads = [1]\n'
        '[[network]]\nname = "mine"\nfamily = "feedforward"\ninputs = 64\nhidden = [64]\noutputs = 9\n'
        'activation = "relu"\nbatch_size = 8\n[protocol]\nwarmup_steps = 2\nsteps = 3\nminimum_steps = 3\n'
        "seconds = 0.2\n"
    )
    before = lock.read_text()
    done = refresh("tiny", "--take", "never", "--suite", str(suite))
    assert done.returncode == 0, done.stderr
    sides = re.findall(r"(?:baseline|candidate): tiny \(environment (\w+)", done.stderr)
    assert len(set(sides)) == 2
    assert re.search(r"tiny only, bound +\d+ +\d\.\d+ \(", done.stdout), done.stdout
    assert "the new lock is in" in done.stderr
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
    ],
)
def test_what_cannot_be_asked_is_refused_in_a_line(refresh, lock, words, code, told):
    done = refresh(*words)
    assert (done.returncode, told in done.stderr) == (code, True), done.stderr
    assert "Traceback" not in done.stderr


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
