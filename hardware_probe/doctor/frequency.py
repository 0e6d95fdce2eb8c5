"""The doctor's checks of the clock rate: who sets it, turbo, heat, battery."""

from collections.abc import Iterator

from dlbench.hardware_probe.doctor.facts import Sample, Settings
from dlbench.hardware_probe.doctor.findings import Finding, Remedy, Severity

_HIDDEN = "hidden by the host of this virtual machine"
_NOT_TOLD = "not told by this system"


def findings(settings: Settings, sample: Sample | None) -> Iterator[Finding]:
    """Judge what moves the clock rate."""
    yield _governor(settings)
    yield _boost(settings)
    yield _heat(settings, sample)
    yield from _battery(settings)


def _unknown(settings: Settings) -> str:
    return _HIDDEN if settings.cpu.virtualisation.kind == "vm" else _NOT_TOLD


def _governor(settings: Settings) -> Finding:
    title, governor = "Frequency governor", settings.cpu.frequency.governor
    why = "Any but `performance` lets the clock follow the load, so that the same step takes longer after a pause."
    if governor is None:
        return Finding("governor", title, Severity.UNKNOWN, _unknown(settings), why)
    if governor == "performance":
        return Finding("governor", title, Severity.FINE, governor, why)
    remedy = Remedy(
        "Set it, until the next boot.",
        "echo performance | sudo tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor",
        needs_root=True,
    )
    return Finding("governor", title, Severity.HARMS, governor.replace(",", ", "), why, remedy)


def _boost(settings: Settings) -> Finding:
    frequency = settings.cpu.frequency
    title = "Turbo frequencies"
    why = "The turbo clock falls as more cores work and as they warm up, which looks like poor scaling over threads."
    if frequency.boost is None:
        return Finding("turbo", title, Severity.UNKNOWN, _unknown(settings), why)
    if not frequency.boost:
        return Finding("turbo", title, Severity.FINE, "off", why)
    value = 1 if settings.boost_file and settings.boost_file.endswith("no_turbo") else 0
    seen = "on" if frequency.maximum_mhz is None else f"on, up to {frequency.maximum_mhz:.0f} MHz"
    remedy = Remedy(
        "For scaling curves switch it off until the next boot; comparisons in turns within one run may keep it.",
        f"echo {value} | sudo tee {settings.boost_file}",
        needs_root=True,
    )
    return Finding("turbo", title, Severity.MAY_HARM, seen, why, remedy)


def _heat(settings: Settings, sample: Sample | None) -> Finding:
    title = "Slowed down for heat"
    why = "A processor that is too hot lowers its clock, later steps more than earlier ones."
    since_start = settings.throttle_events
    if since_start is None:
        return Finding("heat", title, Severity.UNKNOWN, _unknown(settings), why)
    now = sample.throttle_events if sample else None
    remedy = Remedy("Let it cool down, clear its fans and vents, and put pauses between runs.")
    if now:
        return Finding("heat", title, Severity.HARMS, f"{now} times in {sample_seconds(sample)}", why, remedy)
    if since_start:
        seen = f"{since_start} times since it was started" + (", not now" if now is not None else "")
        return Finding("heat", title, Severity.MAY_HARM, seen, why, remedy)
    return Finding("heat", title, Severity.FINE, "never since it was started", why)


def sample_seconds(sample: Sample | None) -> str:
    """Return how long the sample lasted, in words."""
    return f"{sample.seconds:.1f} s" if sample else "no time"


def _battery(settings: Settings) -> Iterator[Finding]:
    if settings.on_battery is None:
        return
    title, why = "Power", "On battery the firmware caps the clock, by more as the charge falls."
    if settings.on_battery:
        yield Finding("power", title, Severity.HARMS, "battery", why, Remedy("Plug it in."))
    else:
        yield Finding("power", title, Severity.FINE, "mains", why)
