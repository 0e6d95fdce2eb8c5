"""The machine: its hardware, its ceilings, and whether it is quiet.

`probe` returns a `Machine` with a stable fingerprint, and `measure` returns its `Ceilings`.
`sentinel.take` returns the sentinel's `Reading`, whose `unquiet_reasons` explain why the machine is
not quiet now.
"""

from dlbench.hardware_probe.ceilings import Ceiling, Ceilings, ProbeError, measure
from dlbench.hardware_probe.cpu import Cpu, probe_cpu
from dlbench.hardware_probe.gpu import Gpus, probe_gpus
from dlbench.hardware_probe.machine import Machine, describe, probe
from dlbench.hardware_probe.sentinel import Reading, unquiet_reasons

__all__ = [
    "Ceiling",
    "Ceilings",
    "Cpu",
    "Gpus",
    "Machine",
    "ProbeError",
    "Reading",
    "describe",
    "measure",
    "probe",
    "probe_cpu",
    "probe_gpus",
    "unquiet_reasons",
]
