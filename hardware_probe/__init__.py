"""What this machine is, and what it can do.

`probe` returns a `Machine` with a stable fingerprint; `measure` returns its `Ceilings`; `take_reading` returns the
sentinel's `Reading`, whose `disturbances` say why the machine is not quiet now.
"""

from dlbench.hardware_probe.ceilings import Ceiling, Ceilings, ProbeError, measure
from dlbench.hardware_probe.cpu import Cache, Cpu, Frequency, Virtualisation, bound_mask, probe_cpu
from dlbench.hardware_probe.gpu import Gpu, Gpus, probe_gpus
from dlbench.hardware_probe.machine import Machine, OperatingSystem, describe, probe
from dlbench.hardware_probe.memory import Memory, probe_memory
from dlbench.hardware_probe.sentinel import Reading, disturbances
from dlbench.hardware_probe.sentinel import take as take_reading

__all__ = [
    "Cache",
    "Ceiling",
    "Ceilings",
    "Cpu",
    "Frequency",
    "Gpu",
    "Gpus",
    "Machine",
    "Memory",
    "OperatingSystem",
    "ProbeError",
    "Reading",
    "Virtualisation",
    "bound_mask",
    "describe",
    "disturbances",
    "measure",
    "probe",
    "probe_cpu",
    "probe_gpus",
    "probe_memory",
    "take_reading",
]
