"""How many examples the properties are tried with: the same few in every run, or as many as asked
for, at random."""

import os
from typing import Any

from hypothesis import settings
from hypothesis.internal.conjecture import engine

#: How many examples at random a property gets that usually gets a hundred; others in proportion.
VARIABLE = "DLBENCH_PROPERTY_EXAMPLES"
USUAL = 100
#: The same number where none are asked for: every run tries the same examples, and more of them
#: tell little.
IN_EVERY_RUN = 25
_LEAST = 6


def examples(usual_examples: int, **options: Any) -> settings:
    """Return the settings of a property that needs so many examples, or as many in proportion to
    what was asked for."""
    requested = int(os.environ.get(VARIABLE, IN_EVERY_RUN))
    return settings(
        max_examples=max(min(usual_examples, _LEAST), usual_examples * requested // USUAL),
        **options,
    )


def load_profile() -> None:
    """Let every run try the same examples, unless some are asked for at random; no property is
    timed."""
    at_random = VARIABLE in os.environ
    settings.register_profile(
        "dlbench",
        derandomize=not at_random,
        database=None,
        deadline=None,
        print_blob=True,
        max_examples=examples(USUAL).max_examples,
    )
    settings.load_profile("dlbench")
    # A failing example is simplified, but for no longer than this; the usual limit is five minutes.
    engine.MAX_SHRINKING_SECONDS = 20
