"""A store to fill: in memory, or at the database URL in ``DLBENCH_TEST_STORE_URL``, which is emptied first."""

import os

import sqlalchemy as sa

from dlbench.reports import schema
from dlbench.reports.store import Store


def empty_store() -> Store:
    url = os.environ.get("DLBENCH_TEST_STORE_URL")
    if not url:
        return Store.open("sqlite://")
    engine = sa.create_engine(url)
    schema.TABLES.drop_all(engine)
    engine.dispose()
    return Store.open(url)
