"""The quantities that --judge names."""

from typing import Any

from dlbench.reports.results.judged import JUDGED, NAMES, TIME

from ..errors import UsageError
from . import values


def judged_given(text: str) -> dict[str, Any]:
    """Return `Rule.judges_time` and `Rule.further` from the words of --judge. Raises UsageError."""
    further: dict[str, float] = {}
    names = []
    for word in values.words(text):
        name, equals, share = word.partition("=")
        values.one_of(name, "quantity to judge by", NAMES)
        names.append(name)
        if name == TIME:
            if equals:
                raise UsageError(
                    "time takes no share to judge by: its thresholds are --threshold and "
                    "--tolerance."
                )
        elif equals:
            further[name] = values.share(share, f"the threshold of {name}")
        else:
            further[name] = JUDGED[name].threshold
    return {"judges_time": TIME in names, "further": tuple(further.items())}
