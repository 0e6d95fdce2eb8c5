"""Launches to be compared with the 2016 paper's table, and what the report makes of them."""

import factory_of_records as make
from exported import exporters

from dlbench.hardware_probe import Ceilings
from dlbench.reports.builds import Builds
from dlbench.reports.cells import build_matrix
from dlbench.reports.published import SHI2016, Counterpart, study
from dlbench.reports.ratio.against import Against, against
from dlbench.reports.storage.hosts import Host
from dlbench.reports.storage.record import Record
from dlbench.reports.storage.results import Results

FORMATS = exporters("against")
launches = make.launches
COUNTERPARTS = {
    "caffe": Counterpart("caffe", "Caffe"),
    "cntk": Counterpart("", "CNTK", "its interpreter is gone"),
    "tensorflow": Counterpart("tensorflow", "TensorFlow"),
    "torch": Counterpart("pytorch", "PyTorch"),
}
TENSORFLOW = {"framework": "tensorflow", "adapter": "tensorflow", "mode": "function"}
CEILINGS = {1: 100e9, 2: 190e9, 4: 360e9, 8: 700e9}


def found_in(
    *records: Record, cores: int | None = 8, ceilings: dict[int, float] | None = None, all_modes: bool = False
) -> Against:
    measured = Ceilings(tuple(make.ceiling(p, rate) for p, rate in (ceilings or CEILINGS).items()))
    hosts = {r.machine: Host(r.machine, f"a machine of {cores}", cores, cores, 8.0) for r in records}
    results = Results(records, hosts, dict.fromkeys(hosts, measured))
    builds = Builds(records, {})
    return against(build_matrix(results), study(SHI2016), COUNTERPARTS, builds, all_modes)
