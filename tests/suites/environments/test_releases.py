"""Releases on the package index: their Pythons, their environments, and measuring them."""

import json
import os
import sys
from datetime import date
from pathlib import Path

import numpy
import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up_adapters import ADAPTER, MODES
from made_up_pythons import HOST, left_behind, make_framework, make_python, make_wheel
from packaging.version import Version
from processes import suite_of_null, wait_until

from dlbench.reports.results.storage.store import Store
from dlbench.suites.environments import environment, index, interpreters, packages, releases
from dlbench.suites.environments.interpreters import MANIFEST
from dlbench.suites.environments.releases import Release
from dlbench.suites.errors import FrameworkEnvironmentError, IndexUnreachableError
from dlbench.suites.planning import framework as catalogue

JSON = "application/vnd.pypi.simple.v1+json"
NOWHERE = "http://127.0.0.1:9/simple"


def wheel(file: str, uploaded: str | None = None, requires: str | None = None) -> index.Wheel:
    """Return the wheel of this name, as the index describes it."""
    page = {"files": [{"filename": file, "upload-time": uploaded, "requires-python": requires}]}
    (parsed,) = index.read_page(file.partition("-")[0], JSON, json.dumps(page))
    return parsed


@pytest.fixture(autouse=True)
def _nothing_stays(monkeypatch):
    """Keep what a test asks an index, and registers, from the others."""
    monkeypatch.setattr(index, "_known", {})
    monkeypatch.setattr(catalogue, "_added", {})


# What the index has.


def test_pages_in_json_and_html_give_wheels_that_are_not_yanked():
    files = [
        {
            "filename": "tiny-1.0-py3-none-any.whl",
            "upload-time": "2024-05-06T07:08:09.1Z",
            "size": 7,
            "yanked": False,
        },
        {"filename": "tiny-1.1-py3-none-any.whl", "yanked": "broken"},
        {"filename": "tiny-1.2rc1-py3-none-any.whl"},
        {"filename": "tiny-1.3.tar.gz"},
        {"filename": "tinier-1.4-py3-none-any.whl"},
        {"filename": "tiny-1.5-py3-none-any.whl", "requires-python": ">=3.7, none"},
        {"filename": "tiny-1.6-cp311-cp311-manylinux1_x86_64.whl", "requires-python": ">=3.9"},
    ]
    wheels = list(index.read_page("tiny", JSON, json.dumps({"files": files})))
    assert [(str(wheel.version), wheel.uploaded, wheel.size) for wheel in wheels] == [
        ("1.0", date(2024, 5, 6), 7),
        ("1.2rc1", None, 0),
        ("1.6", None, 0),
    ]
    anchors = []
    for file in files:
        requires = file.get("requires-python", "").replace(">", "&gt;")
        yanked = " data-yanked" if file.get("yanked") else ""
        address = f"../files/{file['filename']}#sha256=0"
        anchors.append(f'<a href="{address}" data-requires-python="{requires}"{yanked}>x</a>')
    page = f"<html><body>{''.join(anchors)}</body></html>"
    wheels_of_html = list(index.read_page("tiny", "text/html; charset=utf-8", page))
    assert [(wheel.file, wheel.requires) for wheel in wheels_of_html] == [
        (wheel.file, wheel.requires) for wheel in wheels
    ]


@pytest.mark.parametrize(
    ("file", "uploaded", "requires", "fits"),
    [
        ("a-1-cp311-cp311-any.whl", None, None, []),  # no platform of this machine
        ("a-1-cp311-none-any.whl", "2022-01-01", None, ["3.11"]),
        ("a-1-py3-none-any.whl", None, None, ["3.8", "3.11", "3.13"]),
        ("a-1-py2.py3-none-any.whl", "2023-01-01", None, ["3.8", "3.11"]),
        ("a-1-py3-none-any.whl", "2021-01-01", None, ["3.8"]),
        ("a-1-py3-none-any.whl", None, ">=3.11.4,<3.13", ["3.11"]),
        ("a-1-py2-none-any.whl", None, None, []),
    ],
)
def test_a_wheel_fits_the_pythons_that_its_name_and_its_time_allow(file, uploaded, requires, fits):
    described = wheel(file, uploaded, requires)
    assert [python for python in ("3.8", "3.11", "3.13") if described.fits(python)] == fits
    if requires is None and "py3" in file:
        assert described.fits("3.13", later=True)


def test_a_wheel_of_this_machine_and_this_python_fits_it():
    metadata = sorted(Path(numpy.__file__).parents[1].glob("numpy-*.dist-info/WHEEL"))[
        0
    ].read_text()
    tag = next(line.split()[1] for line in metadata.splitlines() if line.startswith("Tag:"))
    assert wheel(f"numpy-2.0-{tag}.whl").fits(HOST)
    assert not wheel(f"numpy-2.0-{tag}.whl").fits("3.7")


VERSIONS = [Version(f"1.{minor}.{patch}") for minor in range(3) for patch in range(3)]


@given(
    st.dictionaries(
        st.sampled_from(VERSIONS), st.lists(st.sampled_from(["3.8", "3.9", "3.10"]), unique=True)
    )
)
def test_each_version_gets_a_python_that_fits_and_one_is_enough_where_it_fits_all(fitting):
    chosen = releases.fewest_pythons(fitting)
    assert chosen.keys() == {version for version, pythons in fitting.items() if pythons}
    assert all(python in fitting[version] for version, python in chosen.items())
    common = set.intersection(*(set(fitting[version]) for version in chosen)) if chosen else set()
    assert len(set(chosen.values())) == 1 or not common


@pytest.mark.parametrize(
    ("first", "last", "choice", "chosen"),
    [
        (None, None, "minor", ["1.0.2", "1.1.2", "1.2.2"]),
        ("1.0.1", "1.2.0", "minor", ["1.0.1", "1.0.2", "1.1.2", "1.2.0"]),
        ("1.1.1", "1.1.1", "minor", ["1.1.1"]),
        ("1.1", "1.2", "all", ["1.1.0", "1.1.1", "1.1.2", "1.2.0"]),
        ("2.0", None, "all", []),
    ],
)
def test_of_minor_versions_the_last_and_the_first_that_is_named(first, last, choice, chosen):
    low, high = (None if word is None else Version(word) for word in (first, last))
    assert [
        str(version) for version in releases.chosen_versions(reversed(VERSIONS), low, high, choice)
    ] == chosen


def test_a_dependency_is_of_the_releases_time_or_the_oldest_that_fits_the_python(monkeypatch):
    wheels_by_name = {
        "old": [wheel(f"old-{v}-py3-none-any.whl", f"20{20 + v}-01-01") for v in (1, 2, 3)],
        "new": [wheel(f"new-{v}-cp312-none-any.whl", f"20{20 + v}-01-01") for v in (3, 4)],
        "undated": [wheel("undated-1-py3-none-any.whl")],
        "none": [],
    }
    monkeypatch.setattr(
        index, "wheels", lambda names: {name: tuple(wheels_by_name[name]) for name in names}
    )
    limits = releases.limits_of(wheels_by_name, date(2021, 12, 28), "3.12")
    assert {name: str(version) for name, version in limits.items()} == {"old": "2", "new": "3"}
    assert releases.limits_of(wheels_by_name, None, "3.12") == {}


def test_dependencies_are_no_prereleases(monkeypatch):
    wheels_by_name = {
        "early": [wheel(f"early-{v}-py3-none-any.whl", "2021-01-01") for v in ("1.0", "2.0rc1")]
    }
    monkeypatch.setattr(
        index, "wheels", lambda names: {name: tuple(wheels_by_name[name]) for name in names}
    )
    assert str(releases.limits_of(wheels_by_name, date(2021, 12, 28), "3.12")["early"]) == "1.0"


# Environments.


@pytest.fixture
def tiny(tmp_path, home, host_python, monkeypatch):
    """Give a framework of this Python whose releases are on an index of files."""
    monkeypatch.setattr(releases, "pythons_at_hand", lambda: {HOST: host_python})
    monkeypatch.setenv("PIP_INDEX_URL", (tmp_path / "simple").as_uri())
    (tmp_path / "framework").mkdir()
    framework = make_framework(tmp_path / "framework", python=HOST, imports="tiny")
    return framework.model_copy(update={"packages": ("tiny",)})


def publish(tmp_path: Path, module: str, version: str, text: str = "", requires: str = "") -> None:
    """Put a wheel of this module on the index of files."""
    folder = tmp_path / "simple" / module
    folder.mkdir(parents=True, exist_ok=True)
    make_wheel(folder, module, version, text, requires)
    files = sorted(folder.glob("*.whl"))
    links = "".join(f'<a href="{file.name}">{file.name}</a>' for file in files)
    (folder / "index.html").write_text(f"<!DOCTYPE html><html><body>{links}</body></html>")


def locked(tiny, version: str, ready: bool = False) -> Release:
    """Resolve a release by hand, and pretend that its environment is built."""
    lock = releases._lock_path(tiny, version)
    lock.parent.mkdir(parents=True, exist_ok=True)
    heading = f"# {version}, uploaded 2024-01-01, for Python {HOST}, 5 MB"
    lock.write_text(f"{heading}\ntiny=={version} --hash=sha256:{'0' * 64}\n")
    release = releases.known_releases(tiny)[Version(version)]
    if ready:
        folder = environment.locate(release.locked).directory
        make_python(folder / "bin" / "python", HOST)
        (folder / MANIFEST).write_text('{"megabytes": 1500}')
    return release


@pytest.mark.slow  # builds two environments
def test_an_environment_is_built_again_with_the_same_files_whatever_the_index_has_by_then(
    tiny, tmp_path, home
):
    publish(tmp_path, "numpy", "1.0")
    publish(tmp_path, "tiny", "1.0", requires="numpy")
    first, *further_releases = releases.releases_on_index(tiny)
    assert (first.version, first.problem, further_releases) == ("1.0", "", [])
    python = releases.source_of(tiny, first).interpreter
    assert python == releases.source_of(tiny, first).interpreter
    assert python.parents[1].name.startswith("tiny-1.0-")
    count, megabytes = environment.size_of_releases(tiny)
    assert (count, megabytes > 0) == (1, True)
    publish(tmp_path, "numpy", "2.0")
    assert not environment.remove(tiny)
    assert environment.remove(tiny, releases=True)
    assert left_behind(home) == []
    assert releases.source_of(tiny, first).interpreter == python
    inspection = interpreters.inspect(python, ("tiny", "numpy"))
    assert (inspection.missing, inspection.distributions["numpy"]) == ((), "1.0")


def test_a_release_shares_the_python_of_those_that_are_resolved(tiny, monkeypatch, host_python):
    monkeypatch.setattr(
        releases, "pythons_at_hand", lambda: {"3.8": host_python, HOST: host_python}
    )
    files = tuple(wheel(f"tiny-{version}-py3-none-any.whl") for version in ("1.0", "1.1", "1.2"))
    monkeypatch.setattr(index, "wheels", lambda names: dict.fromkeys(names, files))
    either = tiny.model_copy(update={"python": ("3.8", HOST)})
    assert [release.pythons[0] for release in releases.releases_on_index(either)] == ["3.8"] * 3
    locked(either, "1.1")
    assert [release.pythons[0] for release in releases.releases_on_index(either)] == [HOST] * 3


def test_without_an_index_what_is_built_is_used_and_the_rest_is_said(tiny, monkeypatch):
    monkeypatch.setenv("PIP_INDEX_URL", NOWHERE)
    with pytest.raises(IndexUnreachableError, match="could not be reached") as caught:
        releases.releases_on_index(tiny)
    assert "\n" not in str(caught.value)
    for version, ready in (("1.0", True), ("1.1", False), ("1.2", True)):
        locked(tiny, version, ready)
    lines = []
    offered = releases.releases_on_index(tiny, first="0.9", report=lines.append)
    assert [release.version for release in offered] == ["1.0", "1.2"]
    assert offered[0].uploaded == date(2024, 1, 1)
    assert "Only the releases that are built already are used: 1.0, 1.2." in lines[0]
    assert environment.size_of_releases(tiny) == (2, 3000)


def test_an_index_that_fails_in_the_middle_is_not_asked_again(tiny, monkeypatch):
    versions_resolved = []

    def unreachable(framework, release, log):
        versions_resolved.append(release.version)
        raise IndexUnreachableError("the package index could not be reached.")

    monkeypatch.setattr(releases, "_resolve", unreachable)
    lines = []
    new = [Release(version, None, (HOST,)) for version in ("1.1", "1.2")]
    requested = [locked(tiny, "1.0", ready=True), *new, locked(tiny, "1.3")]
    sources = releases.sources(tiny, requested, report=lines.append)
    assert versions_resolved == ["1.1"]
    assert [source.interpreter is not None for source in sources] == [True, False, False, False]
    assert {source.reason for source in sources[1:]} == {"the package index could not be reached."}
    assert (
        sum("is left out: the package index could not be reached." in line for line in lines) == 3
    )


def test_a_disk_that_would_not_hold_them_is_said_before_anything_is_built(tiny, monkeypatch, home):
    requested = [locked(tiny, "1.0"), locked(tiny, "1.1")]
    monkeypatch.setattr(environment, "free_megabytes", lambda folder: 24.0)
    lines = []
    with pytest.raises(
        FrameworkEnvironmentError,
        match=r"2 releases of Tiny take about 25 MB, and .* has 24 MB free",
    ):
        releases.sources(tiny, requested, report=lines.append)
    assert "2 releases to build; downloads about 10 MB, takes about 25 MB" in lines[0]
    assert left_behind(home) == []


@pytest.mark.slow
def test_what_cannot_be_installed_has_a_reason_and_the_others_are_built(tiny, tmp_path):
    publish(tmp_path, "numpy", "1.0")
    publish(tmp_path, "tiny", "1.0", requires="nowhere")
    publish(tmp_path, "tiny", "1.1", requires="numpy")
    sources = releases.sources(tiny, releases.releases_on_index(tiny), report=lambda line: None)
    assert [source.interpreter is not None for source in sources] == [False, True]
    assert "No matching distribution found for nowhere" in sources[0].reason
    assert "\n" not in sources[0].reason


def test_releases_that_are_not_built_and_are_not_to_be_built_have_one_sentence_and_the_remedy(tiny):
    unresolved = Release("1.2", None, (HOST,))
    with pytest.raises(FrameworkEnvironmentError) as caught:
        releases.sources(
            tiny, [locked(tiny, "1.0"), unresolved], report=lambda line: None, build_missing=False
        )
    assert str(caught.value) == (
        "No environment of these releases of Tiny is built on this machine. Leave --no-build out "
        "to build them."
    )


@pytest.mark.slow
def test_the_reason_why_no_release_could_be_built_is_a_sentence(tiny, tmp_path):
    publish(tmp_path, "tiny", "1.0", requires="nowhere")
    with pytest.raises(
        FrameworkEnvironmentError, match=r"^No release of Tiny could be built\. [A-Z]"
    ):
        releases.sources(tiny, releases.releases_on_index(tiny), report=lambda line: None)


@pytest.mark.parametrize(
    ("limit", "why"), [(None, "it said nothing for"), (0.1, "it took more than 0.1 s")]
)
def test_a_program_that_hangs_is_ended_with_all_that_it_started(tmp_path, monkeypatch, limit, why):
    monkeypatch.setattr(packages, "SILENT_SECONDS", 0.1)
    monkeypatch.setattr(packages, "_LOOK_SECONDS", 0.05)
    code, output = packages.run(
        ["sh", "-c", "sleep 600 & echo $!; wait"], tmp_path / "log", limit=limit
    )
    assert code != 0
    assert why in packages.last_line(output)
    pid = int(output.split()[0])

    def ended() -> bool:
        return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE

    wait_until(ended, "the end of what it started")


# Measuring.

ABOUT = """
name = "tiny"
title = "Tiny"
summary = "made up by a test"
environment = "own"
computes = false
python = ["{python}"]
packages = ["tiny"]
imports = "tiny"
download_megabytes = 1
disk_megabytes = 2
"""
STEP = """
def prepare(self, network, weights, batch):
    self.held, self.seconds = {}, tiny.SECONDS
def step(self):
    until = time.perf_counter() + self.seconds
    while time.perf_counter() < until: pass
"""
BRIEF = {"launches": 3, "warmup_steps": 1, "steps": 9, "minimum_steps": 3, "seconds": 0.3}
NETWORK = """
[[network]]
name = "small"
family = "feedforward"
inputs = 4
hidden = [4]
outputs = 2
activation = "relu"
batch_size = 2
"""
SUITE = suite_of_null(networks=["small"], protocol=BRIEF) + NETWORK
NETWORK_AND_THREAD = ("--network", "fcn5", "--threads", "1")
QUIET = ("--suite", "mine.toml", "--threads", "1", "--no-wait-for-quiet")


@pytest.fixture
def measured(tiny, tmp_path, virtual_environment, monkeypatch):
    """Give the words that measure releases of an adapter whose environments find NumPy."""
    beside = tmp_path / "numpy-alone"
    beside.mkdir()
    site = Path(numpy.__file__).parents[1]
    for path in (site / "numpy", *site.glob("numpy.libs")):
        (beside / path.name).symlink_to(path)
    (packages_folder,) = virtual_environment.glob("lib/python*/site-packages")
    (packages_folder / "numpy-alone.pth").write_text(f"{beside}\n")
    folder = tmp_path / "adapter"
    folder.mkdir()
    (folder / "framework.toml").write_text(ABOUT.format(python=HOST) + MODES)
    indented = "\n".join("    " + line for line in STEP.splitlines())
    (folder / "adapter.py").write_text(f"import tiny\n{ADAPTER}{indented}\n\nADAPTER = Mine\n")
    (folder / "requirements.lock").touch()
    (tmp_path / "mine.toml").write_text(SUITE)
    publish(tmp_path, "tiny", "1.0", "SECONDS = 0.002")
    publish(tmp_path, "tiny", "1.1", "SECONDS = 0.02")
    publish(tmp_path, "tiny", "1.2", "raise ImportError('broken here')")
    return ("releases", "tiny", "--adapter", f"tiny={folder}", *QUIET)


def test_releases_are_built_measured_resumed_without_an_index_and_shown(
    measured, command, tmp_path, monkeypatch
):
    code, out, errors = command(*measured, "--network", "small", "--budget", "100ms")
    assert code in (0, 1), errors  # the first launch may be of the broken one
    assert "3 releases to build; downloads about" in errors
    with Store.open(tmp_path / "dlbench.sqlite", create=False) as store:
        began = {(record.cell, record.launch) for record in store.records()}
    assert 0 < len(began) < 9
    monkeypatch.setenv("PIP_INDEX_URL", NOWHERE)
    monkeypatch.setattr(index, "_known", {})
    code, out, errors = command(*measured, "--network", "small", "--resume", "--json")
    assert code == 0, errors
    with Store.open(tmp_path / "dlbench.sqlite", create=False) as store:
        (run,) = store.runs()
        launches = [(record.cell, record.launch) for record in store.records()]
    assert run.finished is not None
    assert len(launches) == len(set(launches))
    first, second, broken = json.loads(out)["rows"]
    assert [row["release"] for row in (first, second, broken)] == ["1.0", "1.1", "1.2"]
    assert second["before"] == "1.0"
    assert second["seconds_per_minibatch"]["launches"] == 3
    assert second["ratio"]["value"] > 1.5  # of 10: other programs may be in the way
    assert (broken["status"], "broken here" in broken["reason"]) == ("crashed", True)
    (line,) = [row for row in errors.splitlines() if "dlbench bisect" in row]
    clear = second["change"] == "slower"
    assert line.startswith("Confirm it" if clear else "Decide whether 1.1 differs from 1.0: ")
    assert "dlbench bisect tiny --suite mine.toml --networks small --threads 1 " in line
    assert f"--adapter tiny={tmp_path}" in line
    assert line.endswith("--good 1.0 --bad 1.1")
    (tmp_path / "train_step.py").write_text(
        "import tiny\ndef prepare(cell):\n    return lambda: sum(range(10000))\n"
    )
    words = ("--step", "train_step.py", "--launches", "1", "--to", "1.1")
    code, out, errors = command(*measured, *words, "--no-build", "--json")
    monkeypatch.setenv("PIP_INDEX_URL", (tmp_path / "simple").as_uri())
    assert code == 0, errors
    assert [(row["release"], row["framework"]) for row in json.loads(out)["rows"]] == [
        ("1.0", "tiny-1.0"),
        ("1.1", "tiny-1.1"),
    ]
    code, out, _ = command("env", "list", "--adapter", measured[3])
    assert "tiny: 3 releases" in out
    assert command("env", "remove", "tiny", "--releases", "--adapter", measured[3])[0] == 0
    assert "tiny: 3 releases" not in command("env", "list", "--adapter", measured[3])[1]


@pytest.mark.slow  # builds environments and measures pairs; the simulated searches cover the rest
def test_a_bisection_builds_what_it_asks_for_and_says_what_it_could_not_tell_apart(
    measured, command, tmp_path
):
    publish(tmp_path, "tiny", "1.0.1", "raise ImportError('broken here')")
    ends = ("--good", "1.0", "--bad", "tiny-1.1")
    code, out, errors = command("bisect", *measured[1:], "--network", "small", *ends, "--json")
    assert code in (1, 6), errors  # this machine may be too busy
    bisection = json.loads(out)
    assert (bisection["kind"], bisection["good"], bisection["candidates"]) == (
        "release",
        "tiny-1.0",
        ["tiny-1.0.1", "tiny-1.1"],
    )
    if code == 1:
        assert bisection["suspects"] == ["tiny-1.0.1", "tiny-1.1"]
        assert "broken here" in bisection["tried"][0]["problem"]
        assert bisection["slowdown"]["ratio"] > 3


def test_ends_that_are_no_two_releases_in_order_are_refused(measured, command):
    for good, bad, complaint in (
        ("1.1", "1.0", "Swap the two"),
        ("1.0", "tiny-1.0", "Good and bad are the same release, 1.0"),
        ("0.9", "1.1", "There is no release named '0.9'"),
        ("2.0", "3.0", "has no wheels of tiny in this range"),
    ):
        code, _, errors = command(
            "bisect", *measured[1:], "--network", "small", "--good", good, "--bad", bad
        )
        assert (code, complaint in errors) == (2, True), errors


@pytest.mark.parametrize(("good", "bad"), [("1.20.0", "1.21.0"), ("1.19.2", "1.21.0")])
def test_releases_of_the_package_of_another_row_lead_to_that_row(
    tiny, tmp_path, command, good, bad
):
    for version in ("1.18.0", "1.19.2"):
        publish(tmp_path, "onnxruntime-training-cpu", version)
    code, _, errors = command(
        "bisect", "onnxruntime", *NETWORK_AND_THREAD, "--good", good, "--bad", bad
    )
    assert code == 2
    assert "the releases of the package onnxruntime are those of the row onnx." in errors
    assert errors.count("\n") == 1


def test_a_step_for_a_framework_without_an_example_names_its_row(command):
    code, _, errors = command("new", "step", "train_step.py", "--with", "onnxruntime")
    assert code == 2
    assert (
        "There is no example for onnxruntime. There are: jax, numpy, tensorflow, torch." in errors
    )
    assert "`dlbench bisect onnx --step FILE`" in errors


def test_interpreters_take_the_place_of_the_index_in_their_order(command, tmp_path):
    (tmp_path / "mine.toml").write_text(SUITE)
    words = (
        "--network",
        "small",
        "--launches",
        "1",
        "--python",
        f"newer={sys.executable},older={sys.executable}",
    )
    code, out, errors = command("releases", "null", *QUIET, *words, "--json", "--plot", "drawn.svg")
    assert code == 0, errors
    assert [row["release"] for row in json.loads(out)["rows"]] == ["newer", "older"]
    assert os.path.getsize(tmp_path / "drawn.svg")  # noqa: PTH202
    code, out, _ = command("report", "releases", "--json")
    assert [row["release"] for row in json.loads(out)["rows"]] == ["newer", "older"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["nosuch", "--network", "small"], "There is no framework named 'nosuch'"),
        (["caffe", "--network", "small"], "is not installed from the package index"),
        (["jax"], "Name the network"),
        (["jax:nosuch", "--network", "small"], "jax has no mode 'nosuch'"),
        (["jax", "--network", "small", "--every", "year"], "--every"),
        (["jax", "--network", "small", "--resume"], "no"),
        (
            ["null", "--network", "small", "--python", "a=/x", "--from", "1.0"],
            "--from and --to choose",
        ),
        (["null", "--network", "small", "--plot", "x.gif", "--python", "a=/x"], "PNG or SVG"),
    ],
)
def test_wrong_options_of_releases_are_refused_in_one_line(
    home, command, tmp_path, words, expected
):
    (tmp_path / "mine.toml").write_text(SUITE)
    code, _, errors = command("releases", *words, *QUIET)
    assert code in (2, 4), errors
    assert expected in errors
    assert errors.count("\n") == 1
    assert left_behind(home) == []


def test_prereleases_are_offered_on_request_alone(tmp_path, tiny):
    for version in ("1.0", "1.1rc1"):
        publish(tmp_path, "tiny", version)
    assert [release.version for release in releases.releases_on_index(tiny)] == ["1.0"]
    assert [release.version for release in releases.releases_on_index(tiny, pre=True)] == [
        "1.0",
        "1.1rc1",
    ]
