"""Which room may import which, what guest code may import, and that benchmarks can be imported."""

import ast
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("suites", "reports", "hardware_probe", "adapters")
#: What both sides must agree on: what is asked of a guest and what it answers, and the names in the
#: answer.
SHARED = (
    "adapters.protocol",
    "adapters.axes",
    "adapters.families",
    "adapters.networks",
    "adapters.tuning",
    "adapters.libraries.gpus",
    "adapters.libraries.profiles",
)
#: What a room may import of the others.
MAY_IMPORT = {
    "suites": ("reports", "hardware_probe", "adapters"),
    "reports": ("hardware_probe", *SHARED),
    "hardware_probe": (),
    "adapters": (),
}
#: What suites and the formats of reports may import of reports: the results and their formats, and
#: no analysis.
RESULTS, FORMATS = "dlbench.reports.results", "dlbench.reports.formats"
#: The parts of suites that show a report, and the suite of claims, which the claims' report
#: defines.
SHOW_REPORTS = (
    "suites/commands/",
    "suites/in_pytest/",
    "suites/from_python.py",
    "suites/planning/claims.py",
)
#: What a folder of a framework may import beside the standard library and NumPy: itself by its own
#: name, and these.
FURTHER = {
    "caffe": {"google"},
    "chainer": {"chainermn", "ideep4py"},
    "equinox": {"jax"},
    "flax": {"jax"},
    "jax": {"jaxlib"},
    "libraries": {"onnx", "onnxruntime"},
    "litert": {"ai_edge_litert", "flatbuffers"},
    "keras": {"jax", "jaxlib", "tensorflow", "torch"},
    "onnx": {"onnxruntime"},
    "onnxruntime": {"onnx"},
    "openvino": {"onnx"},
    "pytorch": {"torch"},
}


def modules(room: str) -> list[Path]:
    return sorted(path for path in (ROOT / room).rglob("*.py") if "__pycache__" not in path.parts)


def imported(path: Path) -> Iterator[str]:
    """Yield the full names that a module imports; relative ones as seen from the root."""
    package = path.relative_to(ROOT).parent.parts
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            base = ".".join(part for part in (start, node.module or "") if part)
            yield from (f"{base}.{alias.name}" for alias in node.names)


def room_of(name: str) -> str | None:
    first = name.removeprefix("dlbench.")
    return (
        first
        if first.split(".")[0] in ROOMS and (first != name or name.split(".")[0] in ROOMS)
        else None
    )


@pytest.mark.parametrize("room", ROOMS)
def test_imports_go_one_way(room: str) -> None:
    wrong = []
    for path in modules(room):
        for name in imported(path):
            imported_room = room_of(name)
            if imported_room is None or imported_room.split(".")[0] == room:
                continue
            if not any(
                f"{imported_room}.".startswith(f"{allowed}.") for allowed in MAY_IMPORT[room]
            ):
                wrong.append(f"{path.relative_to(ROOT)} imports {name}")
    assert wrong == []


def of_reports(path: Path) -> list[str]:
    """Return the full names of what a module imports of reports."""
    names = {name if name.startswith("dlbench.") else f"dlbench.{name}" for name in imported(path)}
    return sorted(name for name in names if name.startswith("dlbench.reports."))


def test_results_import_no_report() -> None:
    wrong = []
    for path in modules("reports/results"):
        wrong += [
            f"{path}: {name}" for name in of_reports(path) if not name.startswith(f"{RESULTS}.")
        ]
    for path in modules("reports/formats"):
        allowed = RESULTS, FORMATS, "dlbench.reports.report"
        wrong += [f"{path}: {name}" for name in of_reports(path) if not name.startswith(allowed)]
    assert wrong == []


def test_suites_import_results_and_no_report() -> None:
    wrong = []
    for path in modules("suites"):
        if path.relative_to(ROOT).as_posix().startswith(SHOW_REPORTS):
            continue
        wrong += [
            f"{path}: {name}"
            for name in of_reports(path)
            if not name.startswith((RESULTS, FORMATS))
        ]
    assert wrong == []


def test_the_guest_imports_the_standard_library_numpy_and_its_framework_alone() -> None:
    wrong = []
    for path in modules("adapters"):
        folder = path.relative_to(ROOT / "adapters").parts[0]
        allowed = {"numpy", folder, *FURTHER.get(folder, ()), *sys.stdlib_module_names, "adapters"}
        wrong += [f"{path}: {name}" for name in imported(path) if name.split(".")[0] not in allowed]
        absolute = "import adapters", "from adapters", "import dlbench", "from dlbench"
        wrong += [
            str(path) for line in path.read_text().splitlines() if line.strip().startswith(absolute)
        ]
    assert wrong == []


def test_benchmarks_can_be_imported() -> None:
    """Continuous integration runs no benchmark, so a renamed module would go unnoticed in them."""
    for path in sorted((ROOT / "tests" / "benchmarks").glob("*.py")):
        importlib.import_module(path.stem)
