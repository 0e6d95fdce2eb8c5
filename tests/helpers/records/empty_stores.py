"""A store to fill: in memory, or at the database URL in ``DLBENCH_TEST_STORE_URL``, which is emptied first."""

import os

import sqlalchemy as sa

from dlbench.reports.storage import schema
from dlbench.reports.storage.store import Store

VARIABLE = "DLBENCH_TEST_STORE_URL"
URL = os.environ.get(VARIABLE, "")


def empty_store() -> Store:
    if not URL:
        return Store.open("sqlite://")
    engine = sa.create_engine(URL)
    schema.TABLES.drop_all(engine)
    engine.dispose()
    return Store.open(URL)
