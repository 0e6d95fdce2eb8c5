"""Launch settings: which are possible, what they change of a launch, and that nothing else
changes."""

import re
import shutil
from pathlib import Path

import pytest
from processes import plan_of, records_in, run_command

from dlbench.adapters.protocol import TUNED, Status
from dlbench.adapters.tuning import in_force
from dlbench.suites.errors import SuiteError, UsageError
from dlbench.suites.planning import settings
from dlbench.suites.planning.framework import find, offered, read
from dlbench.suites.planning.settings import check_launch_settings, known_launch_settings, lacking

JEMALLOC = "libjemalloc.so.2"


def any_library() -> str:
    """Return a shared library that this interpreter has loaded, and could do without."""
    mapped = re.findall(
        r"/\S+/lib(?:m|z|ffi|expat|lzma|gcc_s|stdc\+\+|crypto)[-.]\S*$",
        Path("/proc/self/maps").read_text(),
        re.MULTILINE,
    )
    return mapped[0]


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Put a library of jemalloc's name into a folder of its own, and return its path."""
    folder = tmp_path / "libraries"
    folder.mkdir()
    shutil.copy(any_library(), folder / JEMALLOC)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(folder))
    for function in (settings.lacking, settings.launch_setting):
        function.cache_clear()
    yield folder / JEMALLOC
    for function in (settings.lacking, settings.launch_setting):
        function.cache_clear()


def planned(framework, tuning):
    plan = plan_of("table4", frameworks=framework, networks="fcn5", threads="1", tuning=tuning)
    return [cell.tuning for cell in plan.cells]


@pytest.mark.parametrize(
    "name", [name for name, setting in known_launch_settings().items() if setting.libraries]
)
def test_a_setting_without_its_library_is_refused_with_the_name_of_the_package(name):
    if lacking(name):
        with pytest.raises(UsageError, match=re.escape(known_launch_settings()[name].package)):
            planned("torch", f"tuned+{name}")
    else:
        assert planned("torch", f"tuned+{name}") == [f"tuned+{name}"]


def test_a_library_that_is_installed_is_preloaded_beside_that_of_the_row(installed):
    assert planned("torch", "tuned+jemalloc") == ["tuned+jemalloc"]
    mlx = find("mlx").launch_variables("compiled", 1, Path("/e"), ("openblas", "jemalloc"))
    assert mlx["LD_PRELOAD"] == f"/e/openblas/libopenblas.so.0:{installed}"
    assert "LD_PRELOAD" not in find("torch").launch_variables("eager", 1, Path("/e"))


def test_each_launch_setting_that_is_possible_comes_on_top_of_all_settings(installed):
    words = planned("torch", "launch")
    possible = [name for name in find("torch").launchable("eager", "cpu") if not lacking(name)]
    assert words == [TUNED, *(f"tuned+{name}" for name in possible)]
    assert {"jemalloc", "passive_waiting", "pinned_threads"} <= set(possible)
    # JAX has threads of its own, and a framework that computes nothing has no use for any.
    assert "tuned+jemalloc" in planned("jax", "launch")
    assert not any("waiting" in word for word in planned("jax", "launch"))
    with pytest.raises(UsageError, match="No launch setting can be tried on this machine"):
        planned("null", "launch")


@pytest.mark.parametrize(
    ("words", "reported"),
    [
        ("tuned+active_waiting+passive_waiting", "both set OMP_WAIT_POLICY"),
        ("tuned+nosuch", "No row has a setting 'nosuch'.*for any launch: keep_heap, jemalloc"),
        ("installed+short_blocktime", "No selected cell has the setting short_blocktime"),
    ],
)
def test_impossible_tunings_are_refused(words, reported):
    with pytest.raises(UsageError, match=reported):
        planned("torch", words)


def test_of_the_allocators_one_can_be_in_force(installed):
    shutil.copy(installed, installed.with_name("libmimalloc.so.2"))
    with pytest.raises(UsageError, match="one allocator can be in force"):
        check_launch_settings(["jemalloc", "mimalloc"])


def test_no_row_has_another_setting_of_the_same_name():
    for framework in offered().values():
        of_row = {*framework.tuning, *framework.alternatives} - set(framework.tuned_with)
        assert not set(known_launch_settings()) & of_row


@pytest.fixture
def musl(monkeypatch):
    """Let the C library of this system be another one."""
    monkeypatch.setattr(settings, "c_library", lambda: "musl")
    monkeypatch.setattr(settings, "lacking", lacking.__wrapped__)  # without its cache


KEPT = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "68719476736", "MALLOC_ARENA_MAX": "1"}


def test_memory_stays_in_tuned_rows_that_gain_and_wherever_it_is_named():
    torch, tensorflow, keras = find("torch"), find("tensorflow"), find("keras")
    assert torch.launch_variables("eager", 1).items() >= KEPT.items()
    assert not torch.launch_variables("eager", 1, chosen=()).keys() & KEPT
    assert "keep_heap" in torch.tunable("eager", "cpu")
    assert "keep_heap" not in torch.tunable("eager", "cuda:0")
    # On this network the row has two settings, and of two words for one choice the shorter stands.
    words = planned("torch", "tuned,tuned-keep_heap,installed+keep_heap")
    assert words == ["tuned", "installed+fused_update", "installed+keep_heap"]
    assert not tensorflow.launch_variables("function", 1).keys() & KEPT
    assert planned("tensorflow", "tuned+keep_heap") == ["tuned+keep_heap"]
    assert tensorflow.launch_variables("function", 1, chosen=("keep_heap",)).items() >= KEPT.items()
    assert "keep_heap" in keras.tunable("jax")
    assert "keep_heap" not in keras.tunable("tensorflow")


def test_memory_stays_in_huge_pages_too_but_not_under_another_allocator(installed):
    check_launch_settings(["keep_heap"])
    if not lacking("huge_pages"):
        check_launch_settings(["keep_heap", "huge_pages"])
    with pytest.raises(
        UsageError, match="keep_heap and jemalloc exclude each other: one allocator can be in force"
    ):
        check_launch_settings(["keep_heap", "jemalloc"])


def test_a_system_with_another_c_library_has_the_reason(musl):
    with pytest.raises(
        UsageError,
        match=r"keep_heap is not possible on this machine: it is for glibc's malloc.* is musl",
    ):
        check_launch_settings(["keep_heap"])


def test_a_framework_cannot_be_tuned_with_a_setting_that_does_not_exist(tmp_path):
    (tmp_path / "framework.toml").write_text(
        'name = "mine"\ntitle = ""\nsummary = ""\n[modes.a]\nsummary = ""\n[tuned_with]\nkeep_heaps = []\n'
    )
    with pytest.raises(
        SuiteError, match=r"tuned_with: There is no launch setting named 'keep_heaps'.*keep_heap"
    ):
        read(tmp_path / "framework.toml")


@pytest.mark.parametrize("name", ["tensorflow", "keras"])
def test_a_search_tries_tensorflow_with_onednn_and_without(name):
    """Which of the two is faster depends on the network and the processor."""
    words = planned(name, "installed,tuned,each,launch")
    assert {"tuned", "tuned+no_onednn_kernels"} <= set(words)
    assert "no_onednn_kernels" not in " ".join(planned(name, "installed,tuned,each"))
    framework = find(name)
    mode = framework.default_mode
    for word in words:
        cell = in_force(word, framework.tunable(mode, "cpu", "feedforward"))
        value = framework.launch_variables(mode, 1, chosen=cell).get("TF_ENABLE_ONEDNN_OPTS")
        if "no_onednn_kernels" in word:
            assert value == "0", word
        else:
            assert value == ("1" if "onednn_kernels" in cell else None), word
    assert "no_onednn_kernels" not in " ".join(planned("jax", "launch"))
    with pytest.raises(UsageError, match="No row has a setting 'no_onednn_kernels'"):
        planned("torch", "tuned+no_onednn_kernels")


def records_of(folder, *words, **variables):
    """Run the null framework and return the records."""
    common = (
        "--frameworks null --networks fcn5 --threads 1 --launches 1 --steps 5 --no-wait-for-quiet "
        "--no-ceilings"
    )
    done = run_command(folder, "run", "quick", *common.split(), *words, **variables)
    return done, records_in(folder)


def test_a_launch_has_the_library_in_its_process_and_its_record_says_so(tmp_path, installed):
    done, records = records_of(
        tmp_path, "--tuning", "tuned,tuned+jemalloc", LD_LIBRARY_PATH=str(installed.parent)
    )
    assert done.returncode == 0, done.stderr
    outcomes = {record.cell.tuning: record.outcome for record in records}
    assert {outcome.status for outcome in outcomes.values()} == {Status.OK}
    plain, preloaded = (
        outcomes[word].software["variables"] for word in ("tuned", "tuned+jemalloc")
    )
    assert preloaded.pop("LD_PRELOAD").endswith(JEMALLOC)
    assert preloaded.pop("MALLOC_CONF")
    assert preloaded == plain


def test_a_library_that_the_loader_skips_gives_no_number(tmp_path, installed):
    installed.write_text("no library at all")
    _, (record,) = records_of(
        tmp_path, "--tuning", "tuned+jemalloc", LD_LIBRARY_PATH=str(installed.parent)
    )
    assert record.outcome.status is Status.UNSUPPORTED
    assert JEMALLOC in record.outcome.reason
