"""The published tables that may stand in place of a store (`--reference`)."""

from collections.abc import Callable, Mapping

from dlbench.reports.against import brandfonbrener2017, shi2016, wuensche2018
from dlbench.reports.cells import Matrix

TABLES: Mapping[str, Callable[[], Matrix]] = {
    shi2016.NAME: shi2016.table4,
    wuensche2018.NAME: wuensche2018.table1,
    brandfonbrener2017.NAME: brandfonbrener2017.figures,
}
