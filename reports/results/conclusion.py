"""The conclusion of a command for programs: a verdict in a word, and the reason, under a schema."""

from collections.abc import Mapping
from typing import Any, NamedTuple


class Conclusion(NamedTuple):
    """A verdict and the reason for it."""

    verdict: str
    """One of the words that the command's exit codes are documented for."""
    reason: str


def conclusion_data(
    command: str, answer: Conclusion, content: Mapping[str, Any], version: int = 1
) -> dict[str, Any]:
    """Return a JSON object that begins with the same three keys for every command.

    ``version`` increases when a key of the content changes its meaning or disappears.
    """
    return {"schema": f"dlbench-{command}-{version}", **answer._asdict(), **content}
