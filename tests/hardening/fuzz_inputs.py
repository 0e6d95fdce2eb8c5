"""The inputs that are fuzzed: of each kind, damaged ones of real files or words, and the commands that read them."""

import contextlib
import json
import lzma
import re
import shlex
import sqlite3
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import NamedTuple

import mutations

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / "tests" / "goldens"
FURTHER_LINES = (
    *("list", "list --json", "env list", "probe", "plan quick", "plan table4 --frameworks torch --threads 1,2,4-8"),
    *(
        "plan threads --threads 1..4*cpus --json",
        "plan batch --batch-sizes 16..128",
        "import foreign-a1.json --one-run",
    ),
)
MOST_RECORDS = 12
"""Of a store that is fuzzed: a report of more takes longer and finds no more."""

NETWORKS = """
[[network]]
name = "small"
family = "feedforward"
inputs = 784
hidden = [512, 512]
outputs = 10
activation = "relu"
batch_size = 64

[[grid]]
name = "mlp-{hidden}-{activation}"
family = "feedforward"
inputs = 784
hidden = [[128], [256, 256]]
outputs = "inputs"
activation = ["relu", "tanh"]
"""
FRAMEWORK = """
name = "mine"
title = "Mine"
summary = "a framework for tests"
environment = "own"
python = ["3.11"]
imports = "mine"
download_megabytes = 12
disk_megabytes = 30
[variables]
OMP_NUM_THREADS = "{threads}"
[debian]
release = "bullseye"
packages = ["caffe-cpu"]
[project]
licence = "MIT"
source = "somewhere"
releases = [{ version = "1.0", date = 2016-01-01 }]
[modes.eager]
summary = "as it comes"
default = true
devices = ["cpu"]
[modes.eager.settings]
level = 3
[modes.compiled]
summary = "compiled"
"""
SAFE = ("list", "plan", "report", "history", "compare", "export", "import", "store")
"""Commands whose words are fuzzed: those that measure and build nothing."""
REPORTS = ("matrix", "threads", "scaling", "progress", "figure1", "tables", "ceilings", "runs", "claims", "rnn")
FORMATS = ("terminal", "markdown", "latex", "csv", "json")


class Input(NamedTuple):
    """What is given: words of the command, which lies in the folder where its files are."""

    words: list[str]
    file: Path | None
    """The damaged one."""


def _first_records(content: bytes, scratch: Path) -> bytes:
    """Return a store with its first and last records alone."""
    scratch.write_bytes(content)
    with contextlib.closing(sqlite3.connect(scratch, isolation_level=None)) as connection:
        numbers = [row[0] for row in connection.execute("SELECT id FROM records ORDER BY id")]
        kept = {*numbers[: MOST_RECORDS // 2], *numbers[-MOST_RECORDS // 2 :]}
        connection.executemany("DELETE FROM records WHERE id = ?", [(each,) for each in numbers if each not in kept])
        connection.execute("PRAGMA journal_mode=DELETE")
        connection.execute("VACUUM")
    return scratch.read_bytes()


class Inputs:
    """Makes inputs; holds the sound ones."""

    def __init__(self, scratch: Path) -> None:
        packed = {each.name.partition(".")[0]: each for each in sorted((KEPT / "stores").iterdir())}
        unpacked = {name: lzma.decompress(each.read_bytes()) for name, each in packed.items()}
        self.stores = {name: _first_records(each, scratch / "scratch") for name, each in unpacked.items()}
        definitions = sorted((ROOT / "suites" / "definitions").glob("*.toml"))
        files = [*definitions, *sorted((KEPT / "inputs").glob("*.toml"))]
        self.suites = [each.read_bytes() for each in files if each.name != "networks.toml"]
        own = b'name = "mine"\nsummary = "s"\nframeworks = ["null"]\nthreads = [1]\n' + NETWORKS.encode()
        shipped = next(each for each in definitions if each.name == "networks.toml").read_bytes()
        self.networks = [own, own[: own.index(b"[[network]]")] + shipped.replace(b'name = "', b'name = "my')]
        self.imports = [each.read_bytes() for each in sorted((KEPT / "inputs").glob("*.json"))]
        self.imports.append(lzma.decompress((KEPT / "inputs" / "exported.json.xz").read_bytes()))
        self.claim = (KEPT / "inputs" / "claim.toml").read_bytes()
        self.given = {each.name for each in (KEPT / "inputs").iterdir()}
        frameworks = sorted((ROOT / "adapters").glob("*/framework.toml"))
        named = [each.read_bytes().replace(f'name = "{_name(each)}"'.encode(), b'name = "mine"') for each in frameworks]
        self.frameworks = [FRAMEWORK.encode(), *named]
        goldens = re.findall(r'"((?:report|history|compare|export) [^"{]+)"', (KEPT / "test_goldens.py").read_text())
        self.lines = [tuple(shlex.split(line)) for line in (*goldens, *FURTHER_LINES)]
        self.kinds: dict[str, Callable[[Path, Random], Input]] = {
            "suite": self._suite,
            "network": self._network,
            "store": self._store,
            "import": self._import,
            "claim": self._claim,
            "framework": self._framework,
            "words": self._words,
        }

    def _damaged(self, path: Path, content: bytes, random: Random, *ways: Callable[[bytes, Random], bytes]) -> Path:
        path.write_bytes(random.choice(ways)(content, random))
        if random.random() < 0.02:
            mutations.of_file(path, random)
        return path

    def _suite(self, folder: Path, random: Random) -> Input:
        ways = mutations.of_bytes, mutations.of_lines, mutations.of_lines
        path = self._damaged(folder / "mine.toml", random.choice(self.suites), random, *ways)
        return Input(["plan", path.name, *random.choice(((), ("--json",), ("--frameworks", "null")))], path)

    def _network(self, folder: Path, random: Random) -> Input:
        ways = mutations.of_bytes, mutations.of_lines, mutations.of_lines
        path = self._damaged(folder / "mine.toml", random.choice(self.networks), random, *ways)
        return Input(["plan", path.name], path)

    def _store(self, folder: Path, random: Random) -> Input:
        name = random.choice(list(self.stores))
        path = folder / "damaged.sqlite"
        if random.random() < 0.35:
            self._damaged(path, self.stores[name], random, mutations.of_bytes)
        else:
            path.write_bytes(self.stores[name])
            _damage_rows(path, random)
        commands = [
            *(["report", report, "--format", random.choice(FORMATS)] for report in REPORTS),
            *(
                ["report", "matrix", "--quantity", "ceiling"],
                ["history"],
                ["export"],
                ["compare", "previous", "latest"],
            ),
            ["report", "matrix", "--against", "shi2016"],
            *(["plan", "quick"], ["export", "--format", "pytest-benchmark"], ["report", "matrix", "--all-runs"]),
        ]
        if random.random() < 0.01:  # it takes ten times as long as any other
            commands = [["report", "progress", "--plot", "x.svg"], ["history", "--plot", "x.png"]]
        words = [*random.choice(commands), "--store", path.name]
        return Input(words if random.random() < 0.95 else ["store", "upgrade", path.name], path)

    def _import(self, folder: Path, random: Random) -> Input:
        content = random.choice(self.imports)
        path = folder / "given.json"

        def as_tree(raw: bytes, random: Random) -> bytes:
            return json.dumps(mutations.of_tree(json.loads(raw), random)).encode()

        self._damaged(path, content, random, mutations.of_bytes, mutations.of_lines, as_tree, as_tree, as_tree)
        one = ["--one-run"] if random.random() < 0.3 else []
        return Input(["import", *one, path.name, "--store", "made.sqlite"], path)

    def _claim(self, folder: Path, random: Random) -> Input:
        path = self._damaged(folder / "mine.toml", self.claim, random, mutations.of_bytes, mutations.of_lines)
        return Input(["report", "claims", "--reference", "shi2016", "--claim", path.name], path)

    def _framework(self, folder: Path, random: Random) -> Input:
        mine = folder / "adapter"
        mine.mkdir()
        (mine / "adapter.py").write_text("ADAPTER = None\n")
        (mine / "requirements.lock").write_text("mine==1.0\n")
        ways = mutations.of_bytes, mutations.of_lines, mutations.of_lines
        path = self._damaged(mine / "framework.toml", random.choice(self.frameworks), random, *ways)
        given = ["--adapter", f"mine={mine.name}"]
        commands = (["list"], ["list", "--json"], ["plan", "quick", "--frameworks", "mine:*"], ["env", "list"])
        return Input([*random.choice(commands), *given], path)

    def _words(self, folder: Path, random: Random) -> Input:
        line = random.choice(self.lines)
        words = mutations.of_words(line, self.lines, random)
        for word in words:
            name = word.rpartition("=")[2]
            if name.endswith(".sqlite") and name.removesuffix(".sqlite") in self.stores:
                (folder / name).write_bytes(self.stores[name.removesuffix(".sqlite")])
            elif name in self.given:
                (folder / name).write_bytes((KEPT / "inputs" / name).read_bytes())
        # What could write outside the folder, measure or build is no input here.
        outside = any("/" in word and word not in ("null/fcn5",) for word in words)
        return Input(line if outside or "--now" in words or words[:1] != [line[0]] else words, None)


def _name(path: Path) -> str:
    return path.read_text().partition('name = "')[2].partition('"')[0]


def _damage_rows(path: Path, random: Random) -> None:
    """Damage what the rows of a store hold: rubbish in a record, a column of another type, lost rows and tables."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        table = random.choice([each for each in tables if not each.startswith("sqlite_")] + ["records"] * 6)
        columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
        rows = [row[0] for row in connection.execute(f"SELECT rowid FROM {table}")]
        texts = [each for each in columns if each in ("content", "description")]
        kind = random.random()
        with contextlib.suppress(sqlite3.Error, OverflowError, UnicodeError):  # which SQLite does not take
            if kind < 0.03:
                connection.execute(f"DROP TABLE {table}")
            elif kind < 0.06:
                connection.execute(f"DELETE FROM {table}")
            elif rows and texts and kind < 0.8:
                for row in random.sample(rows, random.choice((1, 1, len(rows)))):
                    (text,) = connection.execute(f"SELECT {texts[0]} FROM {table} WHERE rowid = ?", (row,)).fetchone()
                    tree = mutations.of_tree(json.loads(text), random)
                    new = json.dumps(tree) if random.random() < 0.9 else mutations.of_bytes(text.encode(), random)
                    connection.execute(f"UPDATE {table} SET {texts[0]} = ? WHERE rowid = ?", (new, row))
            elif rows:
                value = random.choice(mutations.VALUES)
                value = value if isinstance(value, str | int | float | bytes | None) else json.dumps(value)
                row = random.choice(rows)
                connection.execute(f"UPDATE {table} SET {random.choice(columns)} = ? WHERE rowid = ?", (value, row))
