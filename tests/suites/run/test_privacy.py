"""Whoever measures, wherever and with whatever in the environment: no store, export or report tells
of it."""

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up_adapters import write_adapter
from processes import suite_of_null

from dlbench.adapters.protocol import Parity, Status
from dlbench.reports.results.outcome import Outcome
from dlbench.suites.planning import framework, own
from dlbench.suites.run.privacy import private, private_anywhere, private_value

USER, HOST, SECRET = "alice_q7", "gpu-node-7", "tell-nobody-3f9"
PARITY = Parity("unchecked", "", [], None, None, "", 0.0, 0.0, 0.0)

MODES = """
[modes.works]
summary = "answers"
[modes.raises]
summary = "raises"
[modes.dies]
summary = "dies"
"""
MORE = f"""
KNOWN = "%s %s %s {USER}@{HOST}:80 https://u:{SECRET}@h/x" % (__file__, os.getcwd(), os.path.expanduser("~/x"))
parity_reason = KNOWN
def prepare(self, network, weights, batch):
    self.held = {{}}
    if self.cell.mode == "raises": open(os.path.join(os.path.dirname(__file__), "no", "where"))
    if self.cell.mode == "dies":
        sys.stderr.write(self.KNOWN + str(dict(os.environ))); sys.stderr.flush(); os._exit(3)
def describe(self):
    return {{"framework": "mine", "version": "1", "where": [self.KNOWN], "environment": dict(os.environ)}}
"""


@pytest.fixture(autouse=True)
def _somebody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("USER", "LOGNAME", "LNAME", "USERNAME"):
        monkeypatch.setenv(name, USER)
    monkeypatch.setenv("HOME", str(tmp_path / "home" / USER))
    monkeypatch.setattr(socket, "gethostname", lambda: HOST)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("{home}/x/y.py, line 3", "~/x/y.py, line 3"),
        ("in {home}", "in ~"),
        ("{home}2/z/q", "<path>/q"),
        ("No such file: '/data/my own/a b/x.so'", "No such file: '<path>/x.so'"),
        (
            "P=/data/a/b:/srv/c/d /usr/lib/x.so.1 /proc/self/maps",
            "P=<path>/b:<path>/d /usr/lib/x.so.1 /proc/self/maps",
        ),
        (f"/opt/{USER}/bin/python (/mnt/w/{USER})", "/opt/<user>/bin/python (<path>/<user>)"),
        (f"{USER}@{HOST}:22 [{HOST}]:80", "<user>@<host>:22 [<host>]:80"),
        (
            f"https://u:{SECRET}@h.org/a/b and https://h.org/a/b",
            "https://***@h.org/a/b and https://h.org/a/b",
        ),
        (nothing := "GFLOP/s, and/or, 1/2/3, ~/a/b, a/b/c.py, //, / 2.13.0+cpu", nothing),
    ],
)
def test_private_parts_of_a_text_are_masked(message: str, expected: str) -> None:
    assert private(message.format(home=Path.home())) == expected


@given(
    st.lists(
        st.sampled_from([USER, HOST, SECRET, "a b", "x.py", "usr", "tmp", "data"]),
        min_size=1,
        max_size=6,
    )
)
def test_no_folder_of_a_path_tells_the_user(parts: list[str]) -> None:
    path = "/" + "/".join(parts)
    masked = private(f"'{path}'")
    assert f"/{USER}" not in masked
    if len(parts) > 1 and parts[0] != "usr":
        assert masked.count("/") == 1
    assert private(masked) == masked


def test_every_text_of_an_outcome_and_no_number_is_looked_at() -> None:
    cleaned = private_anywhere(
        Outcome(
            Status.OK,
            "/data/x/y",
            samples_ns=[1, 2],
            parity=PARITY._replace(reason="/data/x/z"),
            software={
                "a": ["/data/x/q"],
                "variables": {"MY_TOKEN": SECRET, "OMP_NUM_THREADS": "1", "LD_PRELOAD": "/d/e/f"},
            },
        )
    )
    assert (cleaned.status, cleaned.reason, cleaned.samples_ns) == (Status.OK, "<path>/y", [1, 2])
    assert cleaned.parity is not None
    assert cleaned.parity.reason == "<path>/z"
    assert cleaned.software == {
        "a": ["<path>/q"],
        "variables": {"MY_TOKEN": "***", "OMP_NUM_THREADS": "1", "LD_PRELOAD": "<path>/f"},
    }
    assert private_value("AWS_SECRET_ACCESS_KEY", "x") == "***"


def test_no_store_and_no_report_tells_who_measured(
    command: Callable[..., tuple[Any, str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(framework, "_added", {})
    monkeypatch.setattr(own, "_warned", set())
    private_folder = tmp_path / "data" / USER
    for folder in (private_folder / "temporary", Path.home()):
        folder.mkdir(parents=True)
    monkeypatch.setenv("TMPDIR", str(private_folder / "temporary"))
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("PIP_INDEX_URL", f"https://u:{SECRET}@h.org/simple")
    write_adapter(private_folder / "mine", MORE, modes=MODES)
    suite = (
        suite_of_null().replace('"null"', '"mine:*"').replace("[settings.null]", "[settings.mine]")
    )
    Path("mine.toml").write_text(suite)
    adapter = ("--adapter", f"mine={private_folder / 'mine'}")
    reported = command("run", "mine.toml", *adapter, "--no-ceilings", "--no-wait-for-quiet")
    assert reported[0] == 0, reported
    assert "<path>/where" in reported[2]
    outputs = [*reported[1:]]
    for words in (
        ("export",),
        ("report", "matrix", "--json"),
        ("report", "tables"),
        ("report", "runs", "--json"),
    ):
        code, out, errors = command(*words)
        assert code == 0, errors
        outputs += [out, errors]
    for text in (
        *(path.read_bytes().decode("latin-1") for path in Path().glob("dlbench.sqlite*")),
        *outputs,
    ):
        for word in (USER, HOST, SECRET, str(tmp_path)):
            assert word not in text
