"""Trees of /proc and /sys, as files under a folder: one recorded from a real machine, others made
to pattern.

Making them keeps hundreds of one-line files out of the checkout, and lets Hypothesis vary them. The
pattern is what Linux shows on such machines.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

from dlbench.hardware_probe.sentinel import Reading

Tree = dict[str, str]

XEON_FLAGS = "fpu vme lm sse4_2 avx f16c fma avx2 ht nonstop_tsc"
SAPPHIRE_RAPIDS_FLAGS = (
    "fpu lm hypervisor sse4_2 avx f16c fma avx2 avx_vnni avx512f avx512bw avx512dq avx512vl "
    "avx512_vnni avx512_bf16 avx512_fp16 amx_bf16 amx_tile amx_int8"
)
# What must never reach a record; the trees hold them in the places where real machines do.
HOST_NAME, USER_NAME, SERIAL = "secret-host-77", "alice-private", "SERIAL0123456789"
GIB = 1024**3
CPUS = "sys/devices/system/cpu"
READING = Reading(
    gemm_flops_per_second=100e9,
    bandwidth_bytes_per_second=20e9,
    waiting_share=0.001,
    steal_share=0.0,
    pressure_share=0.01,
    pressure_avg10=0.0,
    others_cpus=0.01,
    cpus=8.0,
    method="m",
    taken="2026-01-01T00:00:00+00:00",
)


def write_tree(root: Path, tree: Tree) -> Path:
    """Write the files of `tree` under `root`, and return `root`."""
    for folder in {(root / name).parent for name in tree}:
        folder.mkdir(parents=True, exist_ok=True)
    for name, text in tree.items():
        (root / name).write_text(text, encoding="utf-8", errors="replace")
    return root


def _machine(
    system: tuple[str, str, int],
    cpus: int,
    place: Callable[[int], tuple[int, int, str]],
    about: Callable[[int], str],
) -> Tree:
    """Return what every Linux has: ``system`` is distribution, kernel and KiB of memory.

    ``place`` gives a CPU's package, core and sibling threads, ``about`` its lines of /proc/cpuinfo.
    """
    distribution, kernel, memory = system
    tree = {
        "etc/hostname": HOST_NAME,
        "etc/os-release": f'NAME="x"\nPRETTY_NAME="{distribution}"\n',
        "proc/sys/kernel/hostname": HOST_NAME,
        "proc/sys/kernel/osrelease": kernel + "\n",
        "proc/meminfo": (
            f"MemTotal:  {memory} kB\nMemFree: 1000 kB\nMemAvailable:  {memory // 2} kB\n"
            "SwapTotal:  2097148 kB\nSwapFree:  2097148 kB\n"
        ),
        # More CPUs allowed than there are, as the kernel's default mask says.
        "proc/self/status": "Name:\tpython\nUid:\t1000\nCpus_allowed_list:\t0-1023\n",
        f"{CPUS}/online": f"0-{cpus - 1}\n" if cpus > 1 else "0\n",
        "sys/kernel/mm/transparent_hugepage/enabled": "[always] madvise never\n",
        "proc/cpuinfo": "\n".join(f"processor\t: {cpu}\n{about(cpu)}" for cpu in range(cpus)),
    }
    for cpu in range(cpus):
        names = ("physical_package_id", "core_id", "thread_siblings_list")
        tree |= {
            f"{CPUS}/cpu{cpu}/topology/{name}": f"{n}\n"
            for name, n in zip(names, place(cpu), strict=True)
        }
    return tree


def _intel(model: int, name: str, flags: str, further: str = "") -> str:
    lines = (
        f"vendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: {model}\nmodel name\t: {name}\n"
    )
    return f"{lines}{further}flags\t\t: {flags}\n"


def small_vm() -> Tree:
    """Recorded: a virtual machine of two cores with both versions of control groups mounted, in a
    container."""
    tree: Tree = json.loads((Path(__file__).parent / "trees/small_vm.json").read_text())
    return tree


def xeon(sockets: int = 2, cores: int = 8, smt: int = 2) -> Tree:
    """By default the 2016 study's machine: two Xeon E5-2630 v3, with SMT, under an intel_pstate
    kernel.

    Logical CPUs are numbered as Linux does there: first one thread of each core, then the second
    threads. The numbers of cores repeat from socket to socket.
    """
    total = sockets * cores

    def place(cpu: int) -> tuple[int, int, str]:
        core = cpu % total
        return (
            core // cores,
            core % cores,
            ",".join(str(core + total * thread) for thread in range(smt)),
        )

    def about(cpu: int) -> str:
        package, core, _ = place(cpu)
        clocks = (
            f"stepping\t: 2\nmicrocode\t: 0x49\ncpu MHz\t\t: {2400 + cpu}.000\nbogomips\t: "
            f"{4800 + cpu}.00\n"
        )
        numbers = f"{clocks}physical id\t: {package}\ncore id\t\t: {core}\n"
        return _intel(63, "Intel(R) Xeon(R) CPU E5-2630 v3 @ 2.40GHz", XEON_FLAGS, numbers)

    tree = _machine(
        ("Ubuntu 22.04.4 LTS", "5.15.0-105-generic", 132_000_000), total * smt, place, about
    )
    for cpu in range(total * smt):
        package, _, siblings = place(cpu)
        in_package = ",".join(
            str(sibling) for sibling in range(total * smt) if place(sibling)[0] == package
        )
        for index, (level, kind, size, shared) in enumerate(
            (
                (1, "Data", "32K", siblings),
                (1, "Instruction", "32K", siblings),
                (2, "Unified", "256K", siblings),
                (3, "Unified", "20480K", in_package),
            )
        ):
            values = {"level": level, "type": kind, "size": size, "shared_cpu_list": shared}
            tree |= {
                f"{CPUS}/cpu{cpu}/cache/index{index}/{name}": f"{value}\n"
                for name, value in values.items()
            }
        clock = {
            "cpuinfo_min_freq": 1_200_000,
            "cpuinfo_max_freq": 3_200_000,
            "scaling_governor": "performance",
        }
        clock["scaling_cur_freq"] = 2_400_000 + 1000 * cpu
        tree |= {f"{CPUS}/cpu{cpu}/cpufreq/{name}": f"{value}\n" for name, value in clock.items()}
    for node in range(sockets):
        firsts = range(node * cores, total * smt, total)
        cpus = ",".join(f"{first}-{first + cores - 1}" for first in firsts)
        tree[f"sys/devices/system/node/node{node}/cpulist"] = f"{cpus}\n"
    return tree | {
        f"{CPUS}/intel_pstate/no_turbo": "0\n",
        "sys/devices/system/node/online": f"0-{sockets - 1}\n" if sockets > 1 else "0\n",
        "sys/class/dmi/id/sys_vendor": "Dell Inc.\n",
        "sys/class/dmi/id/product_name": "PowerEdge R730\n",
        "sys/class/dmi/id/product_serial": SERIAL,
        "proc/self/cgroup": f"0::/user.slice/user-{USER_NAME}.slice/session-3.scope\n",
        "proc/self/mountinfo": (
            "30 24 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
        ),
    }


def container_v2(quota: str = "150000 100000") -> Tree:
    """A container with a quota of its own under control groups version 2, on a virtual machine with
    AMX."""
    about = _intel(143, "Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz", SAPPHIRE_RAPIDS_FLAGS)
    tree = _machine(
        ("Debian GNU/Linux 12 (bookworm)", "6.1.0-21-amd64", 32_800_000),
        8,
        lambda cpu: (0, cpu // 2, f"{cpu // 2 * 2}-{cpu // 2 * 2 + 1}"),
        lambda cpu: about,
    )
    return tree | {
        "sys/class/dmi/id/sys_vendor": "Google\n",
        "sys/class/dmi/id/product_name": "Google Compute Engine\n",
        "run/.containerenv": "",
        # The container sees its own group as the mount point, and its path in the host's tree
        # beside it.
        "proc/self/cgroup": f"0::/machine.slice/libpod-{USER_NAME}.scope\n",
        "proc/self/mountinfo": (
            f"800 790 0:26 /machine.slice/libpod-{USER_NAME}.scope /sys/fs/cgroup ro - cgroup2 "
            "cgroup rw\n"
        ),
        "sys/fs/cgroup/cpu.max": quota + "\n",
        "sys/fs/cgroup/memory.max": f"{8 * GIB}\n",
    }


def container_v1() -> Tree:
    """The same under version 1, where cpu and cpuacct share a mount; the quota is half that of an
    ancestor."""
    tree = container_v2()
    del tree["sys/fs/cgroup/cpu.max"], tree["sys/fs/cgroup/memory.max"], tree["run/.containerenv"]
    cpu, memory = "sys/fs/cgroup/cpu,cpuacct", "sys/fs/cgroup/memory"
    return tree | {
        "run/systemd/container": "lxc\n",
        "proc/self/cgroup": "5:cpu,cpuacct:/jobs/42\n4:memory:/jobs/42\n1:name=systemd:/jobs/42\n",
        "proc/self/mountinfo": (
            "40 32 0:35 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
            "41 32 0:36 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
            "42 32 0:37 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd\n"
        ),
        f"{cpu}/cpu.cfs_quota_us": "-1\n",
        f"{cpu}/cpu.cfs_period_us": "100000\n",
        f"{cpu}/jobs/cpu.cfs_quota_us": "400000\n",
        f"{cpu}/jobs/cpu.cfs_period_us": "100000\n",
        f"{cpu}/jobs/42/cpu.cfs_quota_us": "100000\n",
        f"{cpu}/jobs/42/cpu.cfs_period_us": "50000\n",
        f"{memory}/memory.limit_in_bytes": "9223372036854771712\n",
        f"{memory}/jobs/42/memory.limit_in_bytes": f"{4 * GIB}\n",
    }


def hybrid_laptop(named: bool = True) -> Tree:
    """A laptop of four fast cores with SMT (CPUs 0 to 7) and eight slow ones (8 to 15), as an
    i7-1260P shows itself.

    ``named``: Intel's drivers name the kinds; else only the kernel's capacities tell them apart,
    where the fast cores differ a little from one another.
    """

    def place(cpu: int) -> tuple[int, int, str]:
        first = cpu // 2 * 2
        return (0, cpu // 2, f"{first}-{first + 1}") if cpu < 8 else (0, cpu - 4, str(cpu))

    def about(cpu: int) -> str:
        numbers = f"physical id\t: 0\ncore id\t\t: {place(cpu)[1]}\n"
        return _intel(154, "12th Gen Intel(R) Core(TM) i7-1260P", XEON_FLAGS, numbers)

    tree = _machine(("Ubuntu 24.04.1 LTS", "6.8.0-45-generic", 16_000_000), 16, place, about)
    if named:
        tree |= {"sys/devices/cpu_core/cpus": "0-7\n", "sys/devices/cpu_atom/cpus": "8-15\n"}
    else:
        capacities = [1009, 1009, 1009, 1009, 1024, 1024, 1009, 1009, *[623] * 8]
        tree |= {
            f"{CPUS}/cpu{cpu}/cpu_capacity": f"{capacity}\n"
            for cpu, capacity in enumerate(capacities)
        }
    return tree | {
        "sys/devices/system/node/online": "0\n",
        "sys/devices/system/node/node0/cpulist": "0-15\n",
    }


def arm() -> Tree:
    """A board with four Cortex-A72: no model name, no frequencies, no caches, a serial number
    instead."""
    about = (
        "BogoMIPS\t: 108.00\nFeatures\t: fp asimd evtstrm crc32 cpuid\nCPU implementer\t: "
        "0x41\nCPU architecture: 8\nCPU variant\t: 0x0\nCPU part\t: 0xd08\nCPU revision\t: 3\n"
    )
    system = "Raspberry Pi OS", "6.6.20+rpt-rpi-v8", 7_900_000
    tree = _machine(system, 4, lambda cpu: (0, cpu, str(cpu)), lambda cpu: about)
    tree["proc/cpuinfo"] += (
        f"\nRevision\t: d03115\nSerial\t\t: {SERIAL}\nModel\t\t: Raspberry Pi 4 Model B Rev 1.5\n"
    )
    return tree


def rapl(microjoules: Mapping[str, int], range_of: int) -> Tree:
    """Return the energy counters of CPU packages, with parts of a package, the platform's, and the
    same ones again."""
    tree = {}

    def zone(name: str, kind: str, spent: int) -> Tree:
        files = {"name": kind, "energy_uj": str(spent), "max_energy_range_uj": str(range_of)}
        return {f"sys/class/powercap/{name}/{file}": f"{text}\n" for file, text in files.items()}

    for number, (name, spent) in enumerate(microjoules.items()):
        tree |= zone(f"intel-rapl:{number}", name, spent)
        tree |= zone(f"intel-rapl:{number}:0", "core", spent // 2)
        tree |= zone(f"intel-rapl:{number}:1", "dram", spent // 3)
        tree |= zone(f"intel-rapl-mmio:{number}", name, spent)
    return tree | zone(f"intel-rapl:{len(microjoules)}", "psys", 3 * sum(microjoules.values()))


ALL: dict[str, Callable[[], Tree]] = {
    "small_vm": small_vm,
    "xeon": xeon,
    "container_v2": container_v2,
    "container_v1": container_v1,
    "hybrid_laptop": hybrid_laptop,
    "arm": arm,
}
