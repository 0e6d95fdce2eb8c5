"""The doctor's checks of what this process may use: quota, mask, cores, the shell's variables, the host behind a VM."""

import math
import shlex
from collections.abc import Iterable, Iterator

from dlbench.hardware_probe.doctor.facts import Settings
from dlbench.hardware_probe.doctor.findings import Finding, Remedy, Severity

_CONTAINERS_WITH_MASKS = ("docker", "podman")
# Of names in one line.
_NAMES_SHOWN = 4


def findings(settings: Settings) -> Iterator[Finding]:
    """Judge what this process may use."""
    yield _quota(settings)
    yield _mask(settings)
    yield _isolated(settings)
    yield from _virtual(settings)
    yield _siblings(settings)
    yield from _core_kinds(settings)
    yield from _variables(settings)


def cpu_list(cpus: Iterable[int]) -> str:
    """Return CPU numbers as the kernel and taskset write them: "0-3,8"."""
    ranges: list[list[int]] = []
    for cpu in sorted(cpus):
        if ranges and cpu == ranges[-1][-1] + 1:
            ranges[-1][1:] = [cpu]
        else:
            ranges.append([cpu])
    return ",".join("-".join(map(str, each)) for each in ranges)


def _quota(settings: Settings) -> Finding:
    cpu = settings.cpu
    why = "A group of processes that has used up its CPU time is stopped until the period, mostly 100 ms, is over."
    quota = cpu.quota_cpus
    if quota is None:
        return Finding("cpu_quota", "CPU quota", Severity.FINE, "none", why)
    seen = f"{quota:g} CPUs' worth of time on {len(cpu.affinity)} CPUs"
    if quota >= len(cpu.affinity):
        return Finding("cpu_quota", "CPU quota", Severity.FINE, seen, why)
    whole = max(1, math.floor(quota))
    mask = cpu_list(cpu.affinity[:whole])
    container = cpu.virtualisation.container
    if container in _CONTAINERS_WITH_MASKS:
        remedy = Remedy(
            "Give the container whole CPUs instead of a share of time (on its host, in place of --cpus).",
            f"{container} run --cpuset-cpus={mask} ...",
        )
    else:
        remedy = Remedy(
            "Have whoever runs this container or job give it whole CPUs (a cpuset) instead of a quota; until then "
            f"measure at {whole} thread{'' if whole == 1 else 's'} or fewer."
        )
    # A whole number of CPUs is harmless as long as no more threads than that ever work.
    severity = Severity.MAY_HARM if quota == whole else Severity.HARMS
    return Finding("cpu_quota", "CPU quota", severity, seen, why, remedy)


def _mask(settings: Settings) -> Finding:
    cpu = settings.cpu
    title, seen = "CPUs allowed", f"{len(cpu.affinity)} of {cpu.logical_cpus}"
    why = "The CPUs outside the mask belong to others, who share caches, memory bandwidth and heat with this process."
    if len(cpu.affinity) >= cpu.logical_cpus:
        return Finding("affinity", title, Severity.FINE, f"all {cpu.logical_cpus}", why)
    every = cpu_list(each for core in cpu.core_siblings for each in core)
    return Finding(
        "affinity",
        title,
        Severity.MAY_HARM,
        f"{seen}: {cpu_list(cpu.affinity)}",
        why,
        Remedy(
            "If the mask is not intended, allow this shell all CPUs; a container's mask is set on its host.",
            f"taskset --all-tasks --cpu-list --pid {every} $$",
        ),
    )


def _isolated(settings: Settings) -> Finding:
    title = "Isolated CPUs"
    why = "The kernel keeps other work away from isolated CPUs, but it does not spread threads over them either."
    inside = set(settings.isolated) & set(settings.cpu.affinity)
    outside = [cpu for cpu in settings.cpu.affinity if cpu not in inside]
    if not inside:
        seen = cpu_list(settings.isolated) + ", outside this process's mask" if settings.isolated else "none"
        return Finding("isolated_cpus", title, Severity.FINE, seen, why)
    seen = f"{cpu_list(inside)}, within this process's mask"
    if len(inside) == 1 and not outside:
        return Finding("isolated_cpus", title, Severity.FINE, seen, why)
    remedy = Remedy("Boot without isolcpus= to measure more than one thread.")
    if outside:
        remedy = Remedy(
            "Keep this shell off them, or boot without isolcpus=: on them, threads crowd together unless bound.",
            f"taskset --all-tasks --cpu-list --pid {cpu_list(outside)} $$",
        )
    return Finding("isolated_cpus", title, Severity.HARMS, seen, why, remedy)


def _virtual(settings: Settings) -> Iterator[Finding]:
    virtual = settings.cpu.virtualisation
    why = "A host decides when and where virtual CPUs run, and what else runs beside them, and shows little of it."
    if virtual.kind != "vm":
        yield Finding("virtual_machine", "Virtual machine", Severity.FINE, "no", why)
        return
    yield Finding(
        "virtual_machine",
        "Virtual machine",
        Severity.MAY_HARM,
        f"yes, under {virtual.hypervisor}" if virtual.hypervisor else "yes",
        why,
        Remedy(
            "Cannot be fixed from inside the virtual machine: take a dedicated host or a real machine for numbers that "
            "are to last, and here compare only what was measured in turns within one run."
        ),
    )


def _siblings(settings: Settings) -> Finding:
    cpu = settings.cpu
    title = "SMT siblings"
    why = "Two threads on one core share its arithmetic units: beyond the cores, more threads are not more hardware."
    if cpu.threads_per_core < 2:
        if cpu.virtualisation.kind == "vm":
            seen = "none shown, but a virtual CPU may be half a core"
            return Finding("smt", title, Severity.UNKNOWN, seen, why)
        return Finding("smt", title, Severity.FINE, "none", why)
    seen = f"{cpu.threads_per_core} threads on each of {cpu.physical_cores} cores"
    in_use = sum(len(set(core) & set(cpu.affinity)) > 1 for core in cpu.core_siblings)
    if not in_use:
        return Finding("smt", title, Severity.FINE, f"{seen}; the mask holds one of each core", why)
    if settings.smt_control and cpu.virtualisation.kind != "vm":
        remedy = Remedy(
            "Measure at `--threads 1-cores`, or switch the siblings off until the next boot.",
            "echo off | sudo tee /sys/devices/system/cpu/smt/control",
            needs_root=True,
        )
    else:
        first = [min(allowed) for core in cpu.core_siblings if (allowed := set(core) & set(cpu.affinity))]
        remedy = Remedy(
            "Measure at `--threads 1-cores`, or allow this shell one thread of each core.",
            f"taskset --all-tasks --cpu-list --pid {cpu_list(first)} $$",
        )
    return Finding("smt", title, Severity.MAY_HARM, seen, why, remedy)


def _core_kinds(settings: Settings) -> Iterator[Finding]:
    allowed = set(settings.cpu.affinity)
    kinds = [(name, sorted(allowed.intersection(cpus))) for name, cpus in settings.core_kinds]
    kinds = [(name, cpus) for name, cpus in kinds if cpus]
    if not kinds:
        return
    title = "Kinds of cores"
    why = "Every parallel step waits for its slowest thread, and chance decides which threads get the slow cores."
    seen = ", ".join(f"{name} {cpu_list(cpus)}" for name, cpus in kinds)
    if len(kinds) == 1:
        yield Finding("core_kinds", title, Severity.FINE, seen, why)
        return
    yield Finding(
        "core_kinds",
        title,
        Severity.HARMS,
        seen,
        why,
        Remedy(
            f"Allow this shell the {kinds[0][0]} cores alone.",
            f"taskset --all-tasks --cpu-list --pid {cpu_list(kinds[0][1])} $$",
        ),
    )


def _variables(settings: Settings) -> Iterator[Finding]:
    title = "Variables of this shell"
    kept = [each.name for each in settings.variables if each.passed_on]
    dropped = [each.name for each in settings.variables if not each.passed_on]
    if kept:
        yield Finding(
            "variables_passed_on",
            "Variables passed on",
            Severity.MAY_HARM,
            _names(kept),
            "What is measured gets to see these, so that another shell may give another number.",
            Remedy(
                "Unset what the frameworks do not need, in the shell that starts dlbench.", shlex.join(["unset", *kept])
            ),
        )
    yield Finding(
        "variables",
        title,
        Severity.FINE,
        f"{_names(dropped)}: not passed on" if dropped else "none that matters",
        "dlbench sets what it measures with itself; other programs started from this shell obey these variables.",
    )


def _names(names: list[str]) -> str:
    more = len(names) - _NAMES_SHOWN
    return ", ".join(names) if more <= 0 else f"{', '.join(names[:_NAMES_SHOWN])} and {more} more"
