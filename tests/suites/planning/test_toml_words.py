"""What is wrong with a suite file is said in the words of its file, never in those of the library that checks it."""

import re

import pytest

from dlbench.suites.errors import SuiteError
from dlbench.suites.planning import suite

GOOD = {"name": '"x"', "summary": '"s"', "networks": '["fcn5"]', "frameworks": '["null"]', "threads": "[1]"}
LIBRARY = re.compile(r"[Ii]nput|tuple|[Ee]xtra|pydantic|permitted|dictionary|validation", re.ASCII)


def said(more: str = "", **changed: str | None) -> str:
    keys = {**GOOD, **changed}
    text = "".join(f"{key} = {value}\n" for key, value in keys.items() if value is not None)
    with pytest.raises(SuiteError) as caught:
        suite.parse(text + more, "mine.toml")
    return str(caught.value)


@pytest.mark.parametrize(
    ("more", "changed", "words"),
    [
        ("lunches = 3", {}, "key lunches: unknown key. Did you mean 'launches' in [protocol]?"),
        ("[protocol]\nlunches = 3", {}, "key protocol.lunches: unknown key. Did you mean 'launches'?"),
        ("netwrks = []", {}, "key netwrks: unknown key. Did you mean 'networks'?"),
        ("zzz = 1", {}, "key zzz: unknown key. Known: affinity, batch_sizes"),
        ("", {"networks": '"fcn5"'}, 'key networks: "fcn5" is not a list, as in ["fcn5", "lstm32"].'),
        ("", {"networks": "[]"}, "key networks: Name at least one"),
        ("", {"networks": "[1]"}, "key networks.0: 1 is not text in quotes"),
        ("", {"threads": None}, "key threads: it is missing."),
        ("", {"threads": "true"}, "key threads: true is not a list of counts, as in [1, 2, 4]."),
        ("", {"name": '"a b"'}, "key name: 'a b' may hold letters"),
        ("[protocol]\nsteps = 0", {}, "key protocol.steps: 0 is out of range: it must be at least 1."),
        ("[protocol]\nsteps = 'a'", {}, 'key protocol.steps: "a" is not a whole number.'),
        ("[protocol]\nlaunches = true", {}, "key protocol.launches: true is not a whole number."),
        ("[protocol]\nseconds = -1", {}, "key protocol.seconds: -1 is out of range: it must be more than 0."),
        ("[protocol]\nseconds = inf", {}, "key protocol.seconds: it must be a finite number."),
        ("protocol = 3", {}, "key protocol: 3 is not a table, as in [protocol]."),
    ],
)
def test_a_wrong_key_is_told_in_words_of_toml(more, changed, words):
    found = said(more, **changed)
    assert found.startswith("mine.toml, ")
    assert words in found
    assert not LIBRARY.search(found.replace(words, ""))
    assert found.endswith((".", "?"))
