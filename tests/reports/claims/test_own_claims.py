"""A claim of a user's own, from its file to its verdict."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import factory_of_records as make
import pytest
from records_of_claims import here, timed

from dlbench.adapters.protocol import Status
from dlbench.reports.claims.claims import ClaimVerdict
from dlbench.reports.results.storage.store import Store
from dlbench.suites.errors import UsageError
from dlbench.suites.planning.claims import read_claim

Call = Callable[..., tuple[int, str, str]]
MINE = """\
words = "torch:onednn is at least 1.5 times as fast as torch:eager on fcn5"
least = 1.5
cells = { network = "fcn5" }
slower = { framework = "torch:eager" }
faster = { framework = "torch:onednn" }
"""


@pytest.fixture
def mine(tmp_path: Path) -> Callable[[str], Path]:
    def write(text: str) -> Path:
        path = tmp_path / "mine.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def modes(eager: float, onednn: float, **of_cell: object) -> list[make.Record]:
    return [
        *timed("torch", eager, **{"mode": "eager", **of_cell}),
        *timed("torch", onednn, **{"mode": "onednn", **of_cell}),
    ]


def test_a_claim_is_tested_on_each_pair_that_differs_in_its_axes(
    mine: Callable[[str], Path],
) -> None:
    claim = read_claim(mine(MINE))
    assert (claim.id, claim.paper) == ("mine", "own")
    records = [
        *modes(2.0, 1.0, threads=1),
        *modes(2.0, 1.0, threads=2),
        *modes(1.0, 9.0, network="lstm32"),
    ]
    evidence = here(claim, records)
    assert (evidence.verdict, evidence.holds, evidence.of) == (ClaimVerdict.REPRODUCES, 2, 2)
    assert [question.what for question, _ in evidence.figures] == [
        "fcn5, mini-batch 64: torch eager, 1 thread / torch onednn, 1 thread",
        "fcn5, mini-batch 64: torch eager, 2 threads / torch onednn, 2 threads",
    ]
    assert here(claim, modes(1.2, 1.0)).verdict is ClaimVerdict.DIFFERS
    assert (
        here(claim, [*modes(2.0, 1.0, threads=1), *modes(1.0, 1.0, threads=2)]).verdict
        is ClaimVerdict.PARTLY
    )


def test_a_missing_side_is_named(mine: Callable[[str], Path]) -> None:
    claim = read_claim(mine(MINE))
    ended = make.hole(Status.CRASHED, "it fell", mode="onednn")
    evidence = here(claim, [*timed("torch", 1.0, mode="eager", threads=1), ended])
    assert evidence.verdict is ClaimVerdict.NOT_MEASURED
    assert evidence.missing[0].missing == "the second: crashed, it fell"
    evidence = here(claim, timed("torch", 1.0, mode="eager"))
    assert evidence.missing[0].what == "fcn5, mini-batch 64: torch eager, 1 thread / ?"
    assert here(claim, []).verdict is ClaimVerdict.NOT_MEASURED


def test_sides_may_differ_in_any_axis(mine: Callable[[str], Path]) -> None:
    threads = read_claim(
        mine(
            'words = "w"\nmost = 0.6\nsize = 0.5\nslower = { threads = 4 }\nfaster = { threads = [1] }\n'
        )
    )
    records = [
        *timed("torch", 1.0, threads=1),
        *timed("torch", 0.5, threads=4),
        *timed("jax", 0.4, threads=4),
    ]
    evidence = here(threads, records)
    assert (evidence.verdict, evidence.of, len(evidence.missing)) == (ClaimVerdict.REPRODUCES, 1, 1)
    pattern = read_claim(
        mine('words = "w"\nleast = 2\n[slower]\nnetwork = "lstm*"\n[faster]\nnetwork = "fcn?"\n')
    )
    same = {"batch_size": 64}
    evidence = here(
        pattern, [*timed("torch", 3.0, "lstm32", **same), *timed("torch", 1.0, "fcn5", **same)]
    )
    assert evidence.verdict is ClaimVerdict.REPRODUCES
    # The fastest mode stands for a framework of which none is named.
    row = read_claim(
        mine(
            'words = "w"\nleast = 2\nslower = { framework = "jax" }\nfaster = { framework = "torch" }\n'
        )
    )
    evidence = here(row, [*timed("jax", 2.5, mode="jit"), *modes(1.0, 3.0)])
    assert evidence.verdict is ClaimVerdict.REPRODUCES


SIDES = 'slower = { mode = "a" }\nfaster = { mode = "b" }\n'


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "key slower: it is missing"),
        (f'words = "w"\n{SIDES}', "as in least = 1.5"),
        (f'words = "w"\nleast = "2x"\n{SIDES}', 'key least: "2x" is not a number'),
        (f'words = "w"\nleast = 2\nmost = 1\n{SIDES}', "least = 2 must be below most = 1"),
        (f'words = "w"\nleast = 2\nsize = 1.5\n{SIDES}', "size = 1.5 must lie within"),
        (f'words = "w"\nlest = 2\n{SIDES}', "key lest: unknown key. Did you mean 'least'?"),
        (
            'words = "w"\nleast = 1\nslower = "a"\nfaster = "b"\n',
            "key slower: it must be a table of axes",
        ),
        (
            'words = "w"\nleast = 1\nslower = { framwork = "a" }\nfaster = { framework = "b" }\n',
            "key slower: there is no axis 'framwork'. Did you mean 'framework'?",
        ),
        (
            'words = "w"\nleast = 1\nslower = { threads = "2" }\nfaster = { threads = 1 }\n',
            "key slower: threads must be a whole number",
        ),
        (
            'words = "w"\nleast = 1\nslower = { mode = [] }\nfaster = { mode = "b" }\n',
            "key slower: mode must be text in quotes",
        ),
        (
            'words = "w"\nleast = 1\nslower = { mode = "a" }\nfaster = { mode = "a" }\n',
            "are the same cells",
        ),
    ],
)
def test_a_bad_file_is_one_clear_line(text: str, part: str, mine: Callable[[str], Path]) -> None:
    path = mine(text)
    with pytest.raises(UsageError) as caught:
        read_claim(path)
    assert part in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_file_that_is_none(tmp_path: Path, command: Call) -> None:
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    for path in (tmp_path, tmp_path / "none.toml", tmp_path / "bytes.toml"):
        code, out, errors = command("report", "claims", "--claim", str(path))
        assert (code, out, "Traceback" in errors) == (2, "", False)
        assert len(errors.strip().splitlines()) <= 3


@pytest.fixture
def store(tmp_path: Path) -> str:
    path = tmp_path / "kept.sqlite"
    with Store.open(path) as opened:
        for record in modes(2.0, 1.0):
            opened.append(record)
    return str(path)


def test_the_command_fails_on_a_verdict_where_that_is_asked_for(
    store: str, mine: Callable[[str], Path], command: Call
) -> None:
    right, wrong = str(mine(MINE)), "wrong.toml"
    Path(wrong).write_text(MINE.replace("1.5", "3"), encoding="utf-8")
    of_store = ("report", "claims", "--store", store, "--json")
    for files, verdicts, code in (
        ([right], ["reproduces"], 0),
        ([right, wrong], ["reproduces", "differs"], 1),
    ):
        words = [word for file in files for word in ("--claim", file)]
        plainly, out, _ = command(*of_store, *words)
        failing, again, _ = command(*of_store, *words, "--fail-on", "differs")
        assert (plainly, failing, out) == (0, code, again)
        tried = json.loads(out)
        assert [claim["verdict_here"] for claim in tried] == verdicts
        assert [claim["verdict_on_paper"] for claim in tried] == [None] * len(files)
    code, out, _ = command(*of_store[:-1], "--claim", right, "--paper", "wuensche2018")
    assert code == 0
    assert "Your own claims" in out
    assert "Wuensche 2018" in out


def test_the_guides_example_is_a_claim(mine: Callable[[str], Path]) -> None:
    guide = Path(__file__).resolve().parents[3] / "reports/docs/how-to/test-a-claim.md"
    (example,) = re.findall(r"```toml\n(.*?)```", guide.read_text("utf-8"), re.DOTALL)
    claim = read_claim(mine(example))
    assert here(claim, [*modes(2.0, 1.0, threads=1), *modes(2.0, 1.0, threads=4)]).of == 1


def test_pairs_are_of_one_machine_and_of_one_network(mine: Callable[[str], Path]) -> None:
    claim = read_claim(mine(MINE))
    apart = [
        *timed("torch", 2.0, mode="eager"),
        *timed("torch", 1.0, mode="onednn", machine="m-two"),
    ]
    assert here(claim, apart).verdict is ClaimVerdict.NOT_MEASURED
    other_network = [
        *timed("torch", 2.0, mode="eager"),
        *timed("torch", 1.0, mode="onednn", specification="of mine"),
    ]
    assert here(claim, other_network).verdict is ClaimVerdict.NOT_MEASURED
    networks = read_claim(
        mine('words = "w"\nleast = 1.5\nslower = { network = "a" }\nfaster = { network = "b" }\n')
    )
    sized = {"batch_size": 8}
    two_networks = [
        *timed("torch", 2.0, "a", specification="1", **sized),
        *timed("torch", 1.0, "b", specification="2", **sized),
    ]
    assert here(networks, two_networks).verdict is ClaimVerdict.REPRODUCES
