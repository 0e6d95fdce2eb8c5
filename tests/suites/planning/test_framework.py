"""The catalogue of frameworks: what a description may say, and what one that cannot be used does to
the others."""

import re
from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from dlbench.suites.environments import environment
from dlbench.suites.environments.digests import adapter_digest, code_digest
from dlbench.suites.errors import SuiteError, UsageError
from dlbench.suites.planning import framework, values

GOOD = 'name = "{name}"\ntitle = "T"\nsummary = "s"\n{more}\n[modes.only]\ndefault = true\nsummary = "s"\n'


def describe(folder: Path, name: str = "good", more: str = "") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "framework.toml").write_text(GOOD.format(name=name, more=more))
    return folder / "framework.toml"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"\xff\xfe", "is not a text file in UTF-8"),
        (b"name = ", "is not valid TOML"),
        (b'name = "good"\n', "key title: it is missing"),
        (None, "cannot be read: it is not a file"),
    ],
)
def test_a_description_that_cannot_be_used_is_named_and_leaves_the_others(
    tmp_path, monkeypatch, content, words
):
    monkeypatch.setattr(framework, "GUEST_DIRECTORY", tmp_path)
    describe(tmp_path / "whole", "whole")
    broken = tmp_path / "half" / "framework.toml"
    if content is None:
        broken.mkdir(parents=True)
    else:
        broken.parent.mkdir()
        broken.write_bytes(content)
    with pytest.raises(SuiteError, match=words) as caught:
        framework.read(broken)
    assert str(caught.value).startswith(str(broken))
    frameworks = framework.shipped.__wrapped__()
    (name,) = {"good", "half"} & set(frameworks)  # by the name it declares, where that can be read
    assert set(frameworks) == {name, "whole"}
    assert not frameworks["whole"].unavailable
    located = environment.locate(frameworks[name])
    assert located.state is environment.State.UNAVAILABLE
    assert words in located.reason


def test_a_digest_changes_with_any_code_of_the_adapter_and_nothing_else(tmp_path):
    described = framework.read(describe(tmp_path / "a"))
    (tmp_path / "a" / "inner").mkdir()
    known_digests = set()
    for part, content in (
        ("adapter.py", "x"),
        ("inner/b.py", "x"),
        ("inner/b.py", "y"),
        ("framework.toml", "z"),
    ):
        (tmp_path / "a" / part).write_text(content)
        known_digests.add(adapter_digest(described))
        (tmp_path / "a" / "notes.txt").write_text(content)
        assert adapter_digest(described) in known_digests
    assert len(known_digests) == 4
    assert code_digest(described).endswith(adapter_digest(described))
    (tmp_path / "a" / "gone.py").symlink_to("nowhere")
    assert adapter_digest(described) in known_digests


def test_each_lock_has_its_pythons(tmp_path):
    path = describe(tmp_path)
    text = path.read_text()
    assert framework.read(path).by_lock == (framework.read(path),)
    path.write_text(
        'python = ["3.13", "3.11", "3.12"]\nlocks = { "3.13" = "b", "3.12" = "b" }\n' + text
    )
    pythons = {variant.requirements: variant.python for variant in framework.read(path).by_lock}
    assert pythons == {"b": ("3.13", "3.12"), "requirements.lock": ("3.11",)}
    assert list(pythons) == ["b", "requirements.lock"]
    path.write_text('python = ["3.13"]\nlocks = { "3.12" = "b" }\n' + text)
    with pytest.raises(SuiteError, match=r"lock for Python 3\.12, which is not among python"):
        framework.read(path)


#: Under which names the locks have them, where those are not their own.
PACKAGES = {
    "caffe": "python3-caffe",
    "litert": "ai-edge-litert",
    "onnx": "onnxruntime",
    "onnxruntime": "onnxruntime-training-cpu",
    "paddle": "paddlepaddle",
    "tensorflow": "tensorflow-cpu",
}


@pytest.mark.parametrize(
    "described",
    [
        variant
        for entry in framework.shipped().values()
        for variant in entry.by_lock
        if entry.environment == "own" and not entry.unavailable
    ],
    ids=lambda variant: f"{variant.name}-{variant.requirements}",
)
def test_every_installed_version_is_a_release_with_a_known_date(described):
    locks = "\n".join(path.read_text() for path in described.recipe_files if path.exists())
    assert described.project is not None
    releases, first = described.project.releases, described.project.first_release or date.min
    assert all(first <= release.date <= datetime.now(UTC).date() for release in releases)
    assert {(described.folder, release.version) for release in releases} <= set(
        framework.release_dates()
    )
    versions = "|".join(re.escape(release.version) for release in releases)
    # Of Debian's packages the version is followed by Debian's own.
    assert re.search(
        rf"^{PACKAGES.get(described.name, described.name)}(==| )({versions})([ +;]|$)",
        locks,
        re.MULTILINE,
    )


@pytest.mark.parametrize(
    ("package", "row"),
    [("onnxruntime", "onnx"), ("paddlepaddle", "paddle"), ("tensorflow-cpu", "tensorflow")],
)
def test_a_package_of_another_name_leads_to_its_row(package, row):
    assert framework.row_of_package(package).name == row
    assert framework.row_of_package(row) is None
    if package not in framework.offered():
        with pytest.raises(UsageError, match=f"The package {package} is measured in the row {row}"):
            framework.find(package)
        with pytest.raises(UsageError, match=f"The package {package} is measured in the row {row}"):
            values.rows([package], [])
