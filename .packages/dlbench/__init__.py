"""A comparative benchmark suite of deep-learning frameworks in the style of DLBench (Shi et al. 2016).

`launches` and `cells` return the results of a store as pandas DataFrames; they are loaded at their first use.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dlbench.reports.frames import cells, launches

__all__ = ["cells", "launches"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from dlbench.reports import frames

    return getattr(frames, name)
