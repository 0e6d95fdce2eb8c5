import json
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import factory_of_records as make
import pytest
import sqlalchemy as sa
from empty_stores import URL, VARIABLE, empty_store

from dlbench.reports.errors import RecordError, StoreError
from dlbench.reports.storage import record_columns, schema
from dlbench.reports.storage.hosts import read_host
from dlbench.reports.storage.record import Record
from dlbench.reports.storage.store import Store

DATA = Path(__file__).parents[2] / "data"
# Written by the dlbench that knew schema 1 only: eight launches of the null framework and four of real ones. The others
# by those that knew 2 and 3, of made-up records: three cells each, numbered against their order in the run; of version
# 3 two differ in their workers only.
VERSION_1 = DATA / "store_v1.sqlite"
DERIVED = sa.select(*(schema.records.c[name] for name in ("cell_id", "seconds", "contended", "effective")))


@pytest.fixture
def old(tmp_path: Path) -> Path:
    return Path(shutil.copy(VERSION_1, tmp_path / "old.sqlite"))


@pytest.fixture
def second(tmp_path: Path) -> Path:
    return Path(shutil.copy(DATA / "store_v2.sqlite", tmp_path / "second.sqlite"))


def rows(path: Path, statement: str) -> list[dict[str, Any]]:
    connection = sqlite3.connect(path)
    connection.row_factory = sqlite3.Row
    try:
        return [dict(row) for row in connection.execute(statement)]
    finally:
        connection.close()


def shape(store: Store) -> dict[str, Any]:
    """Tables with their columns (type, may be null) and indexes, as the database tells them."""
    inspector = sa.inspect(store._engine)
    return {
        table: (
            {c["name"]: (str(c["type"]), c["nullable"]) for c in inspector.get_columns(table)},
            {i["name"]: i["column_names"] for i in inspector.get_indexes(table)},
            [sorted(u["column_names"]) for u in inspector.get_unique_constraints(table)],
            inspector.get_pk_constraint(table)["constrained_columns"],
        )
        for table in sorted(inspector.get_table_names())
    }


def test_an_old_store_keeps_its_contents_and_gets_the_new_columns(old: Path) -> None:
    before = {row["id"]: json.loads(row["content"]) for row in rows(old, "SELECT id, content FROM records")}
    with Store.open(old) as store:
        assert [version for version, _, _ in store.history()] == [1, 2, 3, 4, 5, 6]
        assert [run.purpose for run in store.runs()] == ["suite", "suite"]
        assert store.records() == [Record.from_dict(content) for content in before.values()]
        hosts = {name: read_host(name, described) for name, described in store.machines().items()}
        cells = store.cells()
    after = rows(old, "SELECT * FROM records")
    assert {row["id"]: json.loads(row["content"]) for row in after} == before
    assert len(after) == 12
    for row in after:
        record = Record.from_dict(json.loads(row["content"]))
        assert cells[row["cell_id"]] == record.cell
        assert row["effective"] == 1
        for name, value in record_columns.columns(record, hosts[record.machine]).items():
            assert row[name] == value, name
    # The real launches are long enough to tell, the null ones are not.
    assert sorted({(row["framework"] == "null", row["contended"]) for row in after}) == [(False, 0), (True, None)]
    assert {row["product_rate"] is None for row in after if row["framework"] == "torch"} == {False}


def test_an_upgraded_store_a_new_one_and_the_tables_in_code_are_alike(old: Path, tmp_path: Path) -> None:
    in_code = Store(sa.create_engine("sqlite://", poolclass=sa.pool.StaticPool), "in code")
    schema.TABLES.create_all(in_code._engine)
    with Store.open(old) as upgraded, Store.open(tmp_path / "new.sqlite") as new:
        assert shape(upgraded) == shape(new) == shape(in_code)
    in_code.close()


@pytest.mark.parametrize("version", [2, 3])
def test_an_earlier_store_keeps_its_cells_and_their_numbers_and_becomes_like_a_new_one(
    version: int, tmp_path: Path
) -> None:
    earlier = Path(shutil.copy(DATA / f"store_v{version}.sqlite", tmp_path))
    assert [row["version"] for row in rows(earlier, "SELECT version FROM schema_history")] == [*range(1, version + 1)]
    cells, records = rows(earlier, "SELECT * FROM cells"), rows(earlier, "SELECT * FROM records")
    assert len(cells) == 3
    assert ("world_size" in cells[0]) is (version == 3)
    expected = {
        row["id"]: {
            "world_size": 1,
            "tuning": "tuned",
            "specification": "",
            **{k: v for k, v in row.items() if k not in ("id", "machine")},
        }
        for row in cells
    }
    with Store.open(earlier, create=False) as read:
        assert {number: cell._asdict() for number, cell in read.cells().items()} == expected
    with Store.open(earlier) as store, Store.open(tmp_path / "new.sqlite") as new:
        assert [version for version, _, _ in store.history()] == [1, 2, 3, 4, 5, 6]
        assert {number: cell._asdict() for number, cell in store.cells().items()} == expected
        numbers = {cell: number for number, cell in store.cells().items()}
        assert [numbers[record.cell] for record in store.records()] == [row["cell_id"] for row in records]
        assert shape(store) == shape(new)
    assert rows(earlier, "SELECT * FROM records") == records


def test_cells_that_differ_in_their_workers_only_are_two(second: Path) -> None:
    with Store.open(second) as store:
        known = store.cells()
        again = store.records()[-1]
        store.append(again)
        assert store.cells() == known
        of_two = make.record(**again.cell._replace(world_size=2)._asdict())
        store.append(of_two)
        (number,) = set(store.cells()) - set(known)
        assert number > max(known)
        assert store.cells()[number] == of_two.cell == again.cell._replace(world_size=2)
        store.append(of_two)
        assert len(store.cells()) == len(known) + 1
        assert {record.cell.world_size for record in store.records()} == {1, 2}
        store.rederive()
        assert store.cells()[number] == of_two.cell
    found = rows(second, "SELECT cell_id, COUNT(*) AS many FROM records GROUP BY cell_id")
    assert {row["cell_id"]: row["many"] for row in found}[number] == 2


def test_the_tables_of_a_server_are_as_in_code() -> None:
    with empty_store() as store:
        found = shape(store)
        assert set(found) == set(schema.TABLES.tables)
        for name, table in schema.TABLES.tables.items():
            assert set(found[name][0]) == {column.name for column in table.columns}
            assert {index.name for index in table.indexes} <= set(found[name][1])


@pytest.mark.skipif(not URL, reason=f"no database server: {VARIABLE} is not set")
def test_an_old_store_on_a_server_is_upgraded_too() -> None:
    empty_store().close()
    engine = sa.create_engine(URL)
    first = schema.MIGRATIONS[0]
    with engine.begin() as connection:
        schema.TABLES.drop_all(connection)
        first.upgrade(connection)
        schema.schema_history.create(connection)
        for table in ("schema_history", "machines", "runs", "records"):
            content = rows(VERSION_1, f"SELECT * FROM {table}")
            names = [sa.column(name) for name in content[0]]
            connection.execute(sa.insert(sa.table(table, *names)), content)
    engine.dispose()
    with Store.open(URL) as store:
        assert [version for version, _, _ in store.history()] == [1, 2, 3, 4, 5, 6]
        assert [row["content"] for row in rows(VERSION_1, "SELECT content FROM records ORDER BY id")] == [
            row.content for row in store._rows(sa.select(schema.records.c.content).order_by(schema.records.c.id))
        ]
        derived = store._rows(DERIVED)
    with Store.open("sqlite://") as elsewhere:
        for row in rows(VERSION_1, "SELECT content FROM records ORDER BY id"):
            elsewhere.append(Record.from_dict(json.loads(row["content"])))
        assert elsewhere._rows(DERIVED) == derived


def test_an_upgraded_store_is_appended_to(old: Path) -> None:
    with Store.open(old) as store:
        known = store.cells()
        again = store.records()[0]
        store.append(again)
        assert store.cells() == known
        store.append(make.record())
        assert len(store.cells()) == len(known) + 1
        assert len(store._rows(DERIVED)) == 14


def test_reading_an_old_store_reads_all_of_it_and_leaves_it_alone(old: Path, tmp_path: Path) -> None:
    before = old.read_bytes()
    upgraded = tmp_path / "upgraded.sqlite"
    upgraded.write_bytes(before)
    with Store.open(old, create=False) as read, Store.open(upgraded) as store:
        assert read.records() == store.records()
        assert read.cells() == store.cells()
        assert read._rows(DERIVED) == store._rows(DERIVED)
    assert old.read_bytes() == before


def test_an_upgrade_is_told_and_keeps_the_store_as_it_was(old: Path) -> None:
    before = rows(old, "SELECT content FROM records ORDER BY id")
    said: list[str] = []
    with Store.open(old, create=False, upgrade=True, report=said.append) as store:
        kept = store.records()
    copy = old.with_name("old.sqlite.schema-1")
    assert said == [f"{old} is upgraded from schema 1 to {schema.newest_version()}; the old file is kept as {copy}"]
    assert rows(copy, "SELECT content FROM records ORDER BY id") == before
    assert [row["version"] for row in rows(copy, "SELECT version FROM schema_history")] == [1]
    shutil.copy(copy, old)
    with Store.open(old, report=said.append) as store:
        assert store.records() == kept
    assert said[1].endswith(f"{copy}.2")
    with Store.open(old, report=said.append):
        assert len(said) == 2


def test_an_old_store_that_is_too_large_to_copy_is_refused_with_the_remedy(
    old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dlbench.reports.storage.database.LARGEST_COPY", 1000)
    with pytest.raises(StoreError, match="too large to be read as it is"):
        Store.open(old, create=False)


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE records SET content = 'no JSON' WHERE id = (SELECT MAX(id) FROM records)",
        "UPDATE records SET content = '[]' WHERE id = (SELECT MAX(id) FROM records)",
        "UPDATE records SET content = json_set(content, '$.schema', 99) WHERE id = (SELECT MAX(id) FROM records)",
        "UPDATE runs SET content = '{}'",
    ],
)
def test_an_old_store_that_cannot_be_read_stays_as_it_was(old: Path, damage: str) -> None:
    connection = sqlite3.connect(old)
    connection.execute(damage)
    connection.commit()
    connection.close()
    before = rows(old, "SELECT * FROM records"), rows(old, "SELECT * FROM sqlite_master")
    with pytest.raises(RecordError) as caught:
        Store.open(old)
    assert str(old) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert (rows(old, "SELECT * FROM records"), rows(old, "SELECT * FROM sqlite_master")) == before
