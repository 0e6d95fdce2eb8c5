"""Suites of one's own over the null framework, as text: short, and the same but for what a test is about."""

import json
from typing import Any


def suite_of_null(
    name: str = "mine", step_seconds: float = 0.02, *, protocol: dict[str, Any] | None = None, **others: Any
) -> str:
    """Return the text of a suite of fcn5 on one thread; lists of ``others`` are its own, numbers null's settings."""
    given = {key: each for key, each in others.items() if isinstance(each, list)}
    lists = {"networks": ["fcn5"], "threads": [1], **given}
    timed = {"warmup_steps": 2, "steps": 3, "seconds": 0.2, **(protocol or {})}
    settings = {"step_seconds": step_seconds, **{key: each for key, each in others.items() if key not in given}}
    return "\n".join(
        (
            f'name = "{name}"',
            'summary = "for tests"',
            'frameworks = ["null"]',
            *(f"{key} = {json.dumps(each)}" for key, each in lists.items()),
            "[protocol]",
            *(f"{key} = {json.dumps(each)}" for key, each in timed.items()),
            "[settings.null]",
            *(f"{key} = {json.dumps(each)}" for key, each in settings.items()),
            "",
        )
    )
