"""Adapters outside the package: how they are named, and what they may do wrong without harm to
anything else."""

import sys
from pathlib import Path

import pytest
from known_networks import data_of
from made_up_adapters import write_adapter
from processes import run_command, suite_of_null

from dlbench.adapters.protocol import Cell, Launch, Protocol, Status
from dlbench.suites.errors import UsageError
from dlbench.suites.planning import framework, own
from dlbench.suites.run.launcher import LaunchRequest, launch_process


@pytest.fixture(autouse=True)
def _nothing_stays(monkeypatch):
    """Keep what a test registers out of the catalogue of the others."""
    monkeypatch.setattr(framework, "_added", {})
    monkeypatch.setattr(own, "_warned", set())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("mine", "cannot be read"),
        ("=folder", "cannot be read"),
        ("mine=", "cannot be read"),
        ("my-frame work=folder", "cannot be read"),
        ("mine=nowhere", "has no framework.toml"),
        ("mine=~nobody-of-this-name/x", "cannot be looked into"),
        ("mine=" + "x" * 300, "cannot be looked into"),
    ],
)
def test_a_wrong_adapter_option_is_refused_in_one_line(text, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=words) as caught:
        own.read_adapter(text, "--adapter")
    assert str(caught.value).startswith("--adapter")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "declared", "words"),
    [
        ("other", "mine", "describes 'mine', not 'other'"),
        ("torch", "torch", "torch is the name of a framework that dlbench has"),
        ("mine", None, r"no adapter\.py"),
    ],
)
def test_a_folder_that_is_no_such_adapter_is_refused(tmp_path, name, declared, words):
    folder = write_adapter(tmp_path / "a", name=declared or "mine")
    if declared is None:
        (folder / "adapter.py").unlink()
    with pytest.raises(UsageError, match=words):
        own.read_adapter(f"{name}={folder}", "--adapter")


def install(site: Path, project: str, module: str, name: str = "mine") -> Path:
    """Lay out an installed package that declares its module as an adapter; return the entry points'
    file."""
    about = site / f"{project}-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project}\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[{own.GROUP}]\n{name} = {module}\n")
    return about / "entry_points.txt"


def one_warning(capsys) -> str:
    """Return the only line that was said on stderr."""
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("dlbench: ")
    assert line.endswith(" It is left out.")
    return line


def test_an_installed_package_declares_its_adapter(tmp_path, monkeypatch, capsys):
    package = tmp_path / "site" / "mine_benchmarks"
    package.parent.mkdir()
    write_adapter(package)
    (package / "__init__.py").write_text("")
    points = install(package.parent, "mine_benchmarks", "mine_benchmarks")
    monkeypatch.syspath_prepend(package.parent)
    own.register_adapters(None)
    assert framework.find("mine").outside == str(package)
    points.write_text(f"[{own.GROUP}]\nmine = no_such_package\n")
    monkeypatch.setattr(framework, "_added", {})
    for _ in range(2):  # the command registers more than once and says it once
        own.register_adapters(None)
    assert "mine" not in framework.catalogue()
    assert "which is not an installed package" in one_warning(capsys)


# The package on the way to an adapter is a framework, and importing one takes seconds or fails.
EXPLODES = "raise RuntimeError('it was imported')\n"


@pytest.mark.parametrize("editable", [False, True])
def test_no_package_is_imported_to_find_its_adapter(tmp_path, monkeypatch, capsys, editable):
    site = tmp_path / "site"
    code = tmp_path / "checkout" if editable else site
    code.joinpath("explosive_one").mkdir(parents=True)
    (code / "explosive_one" / "__init__.py").write_text(EXPLODES)
    folder = write_adapter(code / "explosive_one" / "dlbench_adapter")
    install(site, "explosive_one", "explosive_one.dlbench_adapter")
    for path in {site, code}:
        monkeypatch.syspath_prepend(path)
    own.register_adapters(None)
    assert framework.find("mine").outside == str(folder)
    assert "explosive_one" not in sys.modules
    assert capsys.readouterr().err == ""


@pytest.mark.slow
def test_a_run_is_resumed_with_its_own_adapters_as_they_were(tmp_path):
    own_folder, other_folder = (
        write_adapter(tmp_path / "a"),
        write_adapter(tmp_path / "b", name="other"),
    )
    (tmp_path / "s.toml").write_text(suite_of_null(protocol={"launches": 3}))

    def refused(*words):
        done = run_command(tmp_path, "run", "s.toml", "--resume", *words)
        assert done.returncode == UsageError.exit_code
        (line,) = done.stderr.splitlines()
        return line

    done = run_command(
        tmp_path, "run", "s.toml", "--adapter", f"mine={own_folder}", "--budget", "0.001s"
    )
    assert "launches left" in done.stderr, done.stderr
    assert refused().endswith("Give its --adapter again.")
    options = ["--adapter", f"mine={own_folder}", "--adapter", f"other={other_folder}"]
    assert "has no row of other" in refused(*options)
    # Until a launch of it has answered there is nothing that a change could make unlike.
    done = run_command(
        tmp_path, "run", "s.toml", *options[:2], "--frameworks", "mine", "--budget", "0.001s"
    )
    assert "launches left" in done.stderr, done.stderr
    with (own_folder / "adapter.py").open("a") as code:
        code.write("# another speed\n")
    assert "its code has changed" in refused(*options[:2], "--frameworks", "mine")


def launch(folder: Path, timeout: float = 120.0, network: str = "lstm32", threads: int = 1):
    """Carry out one launch of the adapter in this folder."""
    cell = Cell("mine", "outside_mine", "only", network, "cpu", threads, 1)
    protocol = Protocol(warmup_steps=2, steps=4, minimum_steps=2, seconds=0.2)
    launch_order = Launch(
        cell,
        protocol,
        {},
        str(folder),
        adapter_directory=str(folder),
        network=data_of(cell.network),
    )
    return launch_process(LaunchRequest(launch_order, Path(sys.executable), {}, timeout)).outcome()


def test_a_copy_that_it_forks_answers_for_nobody(tmp_path):
    """Both processes go on as if each were the launch; the copy is the faster one to end."""
    more = (
        "def prepare(self, network, weights, batch):\n    self.copy = os.fork() == 0\n    "
        "self.held = weights.copy()\n"
    )
    more += "def step(self): time.sleep(0 if self.copy else 0.2)\n"
    more += (
        "def describe(self): return {'framework': 'the copy' if self.copy else 'mine', 'version': "
        "'1'}"
    )
    outcome = launch(write_adapter(tmp_path / "a", more))
    assert outcome.status is Status.OK
    assert outcome.software["framework"] == "mine"
