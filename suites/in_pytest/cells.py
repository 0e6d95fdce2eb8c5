"""The benchmarks that `pytest --dlbench-suite SUITE` brings along where no test of one's own takes the cells."""

import sys
from types import ModuleType
from typing import Any

import pytest

from .replay import MeasuredCell


def dlbench(dlbench_cell: MeasuredCell, benchmark: Any) -> None:
    """One cell as a benchmark."""
    dlbench_cell.replay(benchmark)


class CellsModule(pytest.Module):
    """What pytest collects of this module, whatever file names and function names the user's settings call tests.

    Its place is the name "dlbench" in pytest's root folder, so that the ids of its tests do not depend on where dlbench
    is installed: pytest-benchmark compares by them.
    """

    @classmethod
    def of(cls, session: pytest.Session) -> "CellsModule":
        """Return the collector of this session."""
        module: CellsModule = cls.from_parent(session, path=session.config.rootpath / "dlbench", name="dlbench")
        return module

    def _getobj(self) -> ModuleType:
        return sys.modules[__name__]

    def istestfunction(self, obj: object, name: str) -> bool:
        """Take the one benchmark above."""
        return obj is dlbench

    def istestclass(self, obj: object, name: str) -> bool:
        """Take no class."""
        return False
