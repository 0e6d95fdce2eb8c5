"""The words that the shell completes: suites, networks, frameworks, and the words of the axes."""

from collections.abc import Callable, Iterable
from pathlib import Path

from ..planning.axes import AxisOption

Completer = Callable[[str], list[str]]
"""Takes the word so far, and returns the words that it may become."""
_TUNINGS = ("installed", "tuned", "each", "launch")


def of_list(names: Callable[[], Iterable[str]]) -> Completer:
    """Return the completer of names with commas between them."""

    def complete(incomplete: str) -> list[str]:
        earlier, comma, last = incomplete.rpartition(",")
        used = earlier.split(",")
        return [
            f"{earlier}{comma}{name}"
            for name in names()
            if name.startswith(last) and name not in used
        ]

    return complete


def _networks() -> Iterable[str]:
    from ..planning import networks

    return networks.shipped()


def _frameworks() -> Iterable[str]:
    from ..planning.framework import offered

    return offered()


networks = of_list(_networks)
frameworks = of_list(_frameworks)


def suites(incomplete: str) -> list[str]:
    """Return the suites, and the files that may be suites."""
    from ..planning.suite import shipped

    files = [str(path) for path in Path().glob("*.toml")]
    return [name for name in [*shipped(), *files] if name.startswith(incomplete)]


def framework(incomplete: str) -> list[str]:
    """Return the frameworks."""
    return [name for name in _frameworks() if name.startswith(incomplete)]


def of_axis(axis: AxisOption) -> Completer | None:
    """Return the completer of an axis's words; None where they are numbers."""
    if axis.axis == "network":
        return networks
    if axis.axis == "framework":
        return frameworks
    known = _TUNINGS if axis.axis == "tuning" else axis.known
    return of_list(lambda: known) if known else None
