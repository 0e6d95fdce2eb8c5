"""A comparative benchmark suite of deep-learning frameworks in the style of DLBench (Shi et al. 2016).

`launches` and `cells` return the results of a store as pandas DataFrames; they are loaded at their first use.
"""

import typing

if typing.TYPE_CHECKING:
    from dlbench.reports.frames import cells, launches

__all__ = ["cells", "launches"]


def __getattr__(name: str) -> "typing.Any":
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from dlbench.reports import frames

    return getattr(frames, name)


def __dir__() -> list[str]:
    """List what is offered, loaded or not; a completion shows nothing else."""
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
