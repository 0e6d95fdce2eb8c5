"""Whether the machine is virtual, under which hypervisor, and whether this process runs in a container.

Read from files alone. ``systemd-detect-virt`` and ``lscpu`` know more (they can execute CPUID), but are not
installed everywhere, and the same machine must not look different for want of a tool.
"""

from dataclasses import dataclass
from pathlib import Path

from dlbench.hardware_probe._files import ROOT, read_text

# What the firmware calls the machine, in lower case, and the hypervisor that this betrays. The order counts:
# clouds name themselves as the vendor and sometimes KVM as the product.
_FIRMWARE_NAMES = {
    "amazon ec2": "Amazon Nitro",
    "google": "Google (KVM)",
    "microsoft corporation": "Microsoft Hyper-V",
    "vmware": "VMware",
    "virtualbox": "VirtualBox",
    "xen": "Xen",
    "parallels": "Parallels",
    "openstack": "KVM",
    "rhev": "KVM",
    "kvm": "KVM",
    "qemu": "KVM",
    "bochs": "Bochs",
}

# The clock that a guest shares with its host. Offered by the kernel also where the guest uses another one,
# and the only trace in very small virtual machines, which have no firmware tables at all.
_CLOCKS = {"kvm-clock": "KVM", "hyperv_clocksource": "Microsoft Hyper-V", "xen": "Xen"}


@dataclass(frozen=True)
class Virtualisation:
    """Where the CPUs that this process sees come from."""

    kind: str
    """"none" (the kernel runs on the hardware itself) or "vm"; this much enters the fingerprint."""
    hypervisor: str | None
    """The hypervisor's name where a trace of it is readable."""
    container: str | None
    """"docker", "podman", "lxc", ... where this process runs in a container; None otherwise."""


def probe_virtualisation(cpu_flags: frozenset[str], root: Path = ROOT) -> Virtualisation:
    """Judge from the CPU flag that x86 hypervisors set, the firmware's names, the clocks, the device tree."""
    hypervisor = _hypervisor(root)
    # A physical machine made by Google or Microsoft has the vendor's name too, but not the CPU flag. Arm has
    # no such flag, so there the name alone decides.
    x86 = "fpu" in cpu_flags
    virtual = "hypervisor" in cpu_flags or (not x86 and hypervisor is not None)
    return Virtualisation(
        kind="vm" if virtual else "none", hypervisor=hypervisor if virtual else None, container=_container(root)
    )


def _hypervisor(root: Path) -> str | None:
    sys = root / "sys"
    if (read_text(sys / "hypervisor/type") or "").lower() == "xen":
        return "Xen"
    firmware = " ".join(
        read_text(sys / "class/dmi/id" / name) or "" for name in ("sys_vendor", "product_name", "bios_vendor")
    ).lower()
    for trace, name in _FIRMWARE_NAMES.items():
        if trace in firmware and ".metal" not in firmware:  # Amazon's "c6g.metal" is the hardware itself.
            return name
    clocks = (read_text(sys / "devices/system/clocksource/clocksource0/available_clocksource") or "").split()
    for trace, name in _CLOCKS.items():
        if trace in clocks:
            return name
    compatible = read_text(root / "proc/device-tree/hypervisor/compatible") or ""
    if "kvm" in compatible:
        return "KVM"
    return "Xen" if "xen" in compatible else None


def _container(root: Path) -> str | None:
    if (root / "run/.containerenv").exists():
        return "podman"
    if (root / ".dockerenv").exists():
        return "docker"
    if (root / "var/run/secrets/kubernetes.io").exists():  # containerd leaves no other trace
        return "kubernetes"
    # systemd writes here what PID 1's environment says, readable to everyone.
    return read_text(root / "run/systemd/container")
