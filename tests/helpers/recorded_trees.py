"""Trees of /proc and /sys, as files under a folder: one recorded from a real machine, others made to pattern.

Making them keeps hundreds of one-line files out of the checkout, and lets Hypothesis vary them. The pattern
is what Linux shows on such machines.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from dlbench.hardware_probe.doctor import Finding, Sample, Severity, diagnose, gather_facts
from dlbench.hardware_probe.sentinel import Reading

Tree = dict[str, str]

XEON_FLAGS = "fpu vme lm sse4_2 avx f16c fma avx2 ht nonstop_tsc"
SAPPHIRE_RAPIDS_FLAGS = (
    "fpu lm hypervisor sse4_2 avx f16c fma avx2 avx_vnni avx512f avx512bw avx512dq avx512vl avx512_vnni "
    "avx512_bf16 avx512_fp16 amx_bf16 amx_tile amx_int8"
)
# What must never reach a record; the trees hold them in the places where real machines do.
HOST_NAME, USER_NAME, SERIAL = "secret-host-77", "alice-private", "SERIAL0123456789"


def write_tree(root: Path, tree: Tree) -> Path:
    """Write the files of `tree` under `root`, and return `root`."""
    for name, text in tree.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", errors="replace")
    return root


def small_vm() -> Tree:
    """Recorded: a virtual machine of two cores with both versions of control groups mounted, in a container."""
    tree: Tree = json.loads((Path(__file__).parent / "trees/small_vm.json").read_text())
    return tree


def xeon(sockets: int = 2, cores: int = 8, smt: int = 2) -> Tree:
    """By default the 2016 study's machine: two Xeon E5-2630 v3, with SMT, under an intel_pstate kernel.

    Logical CPUs are numbered as Linux does there: first one thread of each core, then the second threads.
    """
    total = sockets * cores
    tree = _common("Ubuntu 22.04.4 LTS", "5.15.0-105-generic", 132_000_000, range(total * smt))
    blocks: list[str] = []
    for cpu in range(total * smt):
        core = cpu % total
        package = core // cores
        siblings = ",".join(str(core + total * thread) for thread in range(smt))
        in_package = ",".join(str(other) for other in range(total * smt) if other % total // cores == package)
        # The numbers of cores repeat from socket to socket.
        tree |= _topology(cpu, package, core % cores, siblings)
        tree |= _caches(
            cpu,
            [
                (1, "Data", "32K", siblings),
                (1, "Instruction", "32K", siblings),
                (2, "Unified", "256K", siblings),
                (3, "Unified", "20480K", in_package),
            ],
        )
        frequency = f"sys/devices/system/cpu/cpu{cpu}/cpufreq"
        tree |= {
            f"{frequency}/cpuinfo_min_freq": "1200000\n",
            f"{frequency}/cpuinfo_max_freq": "3200000\n",
            f"{frequency}/scaling_cur_freq": f"{2_400_000 + 1000 * cpu}\n",
            f"{frequency}/scaling_governor": "performance\n",
        }
        blocks.append(
            f"processor\t: {cpu}\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 63\n"
            "model name\t: Intel(R) Xeon(R) CPU E5-2630 v3 @ 2.40GHz\nstepping\t: 2\nmicrocode\t: 0x49\n"
            f"cpu MHz\t\t: {2400 + cpu}.000\nphysical id\t: {package}\ncore id\t\t: {core % cores}\n"
            f"bogomips\t: {4800 + cpu}.00\nflags\t\t: {XEON_FLAGS}\n"
        )
    return tree | {
        "proc/cpuinfo": "\n".join(blocks),
        "sys/devices/system/cpu/intel_pstate/no_turbo": "0\n",
        "sys/devices/system/node/online": f"0-{sockets - 1}\n" if sockets > 1 else "0\n",
        **{
            f"sys/devices/system/node/node{node}/cpulist": ",".join(
                f"{first}-{first + cores - 1}" for first in range(node * cores, total * smt, total)
            )
            + "\n"
            for node in range(sockets)
        },
        "sys/class/dmi/id/sys_vendor": "Dell Inc.\n",
        "sys/class/dmi/id/product_name": "PowerEdge R730\n",
        "sys/class/dmi/id/product_serial": SERIAL,
        "proc/self/cgroup": f"0::/user.slice/user-{USER_NAME}.slice/session-3.scope\n",
        "proc/self/mountinfo": "30 24 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n",
    }


def container_v2(quota: str = "150000 100000") -> Tree:
    """A container with a quota of its own under control groups version 2, on a virtual machine with AMX."""
    tree = _common("Debian GNU/Linux 12 (bookworm)", "6.1.0-21-amd64", 32_800_000, range(8))
    blocks: list[str] = []
    for cpu in range(8):
        tree |= _topology(cpu, 0, cpu // 2, f"{cpu // 2 * 2}-{cpu // 2 * 2 + 1}")
        blocks.append(
            f"processor\t: {cpu}\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\n"
            f"model name\t: Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz\nflags\t\t: {SAPPHIRE_RAPIDS_FLAGS}\n"
        )
    return tree | {
        "proc/cpuinfo": "\n".join(blocks),
        "sys/class/dmi/id/sys_vendor": "Google\n",
        "sys/class/dmi/id/product_name": "Google Compute Engine\n",
        "run/.containerenv": "",
        # The container sees its own group as the mount point, and its path in the host's tree beside it.
        "proc/self/cgroup": f"0::/machine.slice/libpod-{USER_NAME}.scope\n",
        "proc/self/mountinfo": (
            f"800 790 0:26 /machine.slice/libpod-{USER_NAME}.scope /sys/fs/cgroup ro - cgroup2 cgroup rw\n"
        ),
        "sys/fs/cgroup/cpu.max": quota + "\n",
        "sys/fs/cgroup/memory.max": str(8 * 1024**3) + "\n",
    }


def container_v1() -> Tree:
    """The same under version 1, where cpu and cpuacct share a mount; the quota is half that of an ancestor."""
    tree = container_v2()
    del tree["sys/fs/cgroup/cpu.max"], tree["sys/fs/cgroup/memory.max"], tree["run/.containerenv"]
    mounts = "sys/fs/cgroup/cpu,cpuacct"
    return tree | {
        "run/systemd/container": "lxc\n",
        "proc/self/cgroup": "5:cpu,cpuacct:/jobs/42\n4:memory:/jobs/42\n1:name=systemd:/jobs/42\n",
        "proc/self/mountinfo": (
            "40 32 0:35 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
            "41 32 0:36 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
            "42 32 0:37 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd\n"
        ),
        f"{mounts}/cpu.cfs_quota_us": "-1\n",
        f"{mounts}/cpu.cfs_period_us": "100000\n",
        f"{mounts}/jobs/cpu.cfs_quota_us": "400000\n",
        f"{mounts}/jobs/cpu.cfs_period_us": "100000\n",
        f"{mounts}/jobs/42/cpu.cfs_quota_us": "100000\n",
        f"{mounts}/jobs/42/cpu.cfs_period_us": "50000\n",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
        "sys/fs/cgroup/memory/jobs/42/memory.limit_in_bytes": str(4 * 1024**3) + "\n",
    }


def hybrid_laptop(named: bool = True) -> Tree:
    """A laptop of four fast cores with SMT (CPUs 0 to 7) and eight slow ones (8 to 15), as an i7-1260P shows itself.

    ``named``: Intel's drivers name the kinds; else only the kernel's capacities tell them apart, where the fast cores
    differ a little from one another.
    """
    tree = _common("Ubuntu 24.04.1 LTS", "6.8.0-45-generic", 16_000_000, range(16))
    blocks: list[str] = []
    for cpu in range(16):
        core = cpu // 2 if cpu < 8 else cpu - 4
        tree |= _topology(cpu, 0, core, f"{cpu // 2 * 2}-{cpu // 2 * 2 + 1}" if cpu < 8 else str(cpu))
        if not named:
            capacity = (1009, 1009, 1024, 1009)[cpu // 2] if cpu < 8 else 623
            tree[f"sys/devices/system/cpu/cpu{cpu}/cpu_capacity"] = f"{capacity}\n"
        blocks.append(
            f"processor\t: {cpu}\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 154\n"
            "model name\t: 12th Gen Intel(R) Core(TM) i7-1260P\nphysical id\t: 0\n"
            f"core id\t\t: {core}\nflags\t\t: {XEON_FLAGS}\n"
        )
    if named:
        tree |= {"sys/devices/cpu_core/cpus": "0-7\n", "sys/devices/cpu_atom/cpus": "8-15\n"}
    return tree | {
        "proc/cpuinfo": "\n".join(blocks),
        "sys/devices/system/node/online": "0\n",
        "sys/devices/system/node/node0/cpulist": "0-15\n",
    }


def arm() -> Tree:
    """A board with four Cortex-A72: no model name, no frequencies, no caches told, a serial number instead."""
    tree = _common("Raspberry Pi OS", "6.6.20+rpt-rpi-v8", 7_900_000, range(4))
    blocks: list[str] = []
    for cpu in range(4):
        tree |= _topology(cpu, 0, cpu, str(cpu))
        blocks.append(
            f"processor\t: {cpu}\nBogoMIPS\t: 108.00\nFeatures\t: fp asimd evtstrm crc32 cpuid\n"
            "CPU implementer\t: 0x41\nCPU architecture: 8\nCPU variant\t: 0x0\nCPU part\t: 0xd08\n"
            "CPU revision\t: 3\n"
        )
    blocks.append(f"Revision\t: d03115\nSerial\t\t: {SERIAL}\nModel\t\t: Raspberry Pi 4 Model B Rev 1.5\n")
    return tree | {"proc/cpuinfo": "\n".join(blocks)}


ALL = {
    "small_vm": small_vm,
    "xeon": xeon,
    "container_v2": container_v2,
    "container_v1": container_v1,
    "hybrid_laptop": hybrid_laptop,
    "arm": arm,
}


def _common(distribution: str, kernel: str, memory_kib: int, cpus: range) -> Tree:
    return {
        "etc/hostname": HOST_NAME,
        "etc/os-release": f'NAME="x"\nPRETTY_NAME="{distribution}"\n',
        "proc/sys/kernel/hostname": HOST_NAME,
        "proc/sys/kernel/osrelease": kernel + "\n",
        "proc/meminfo": (
            f"MemTotal:  {memory_kib} kB\nMemFree: 1000 kB\nMemAvailable:  {memory_kib // 2} kB\n"
            "SwapTotal:  2097148 kB\nSwapFree:  2097148 kB\n"
        ),
        # More CPUs allowed than there are, as the kernel's default mask says.
        "proc/self/status": "Name:\tpython\nUid:\t1000\nCpus_allowed_list:\t0-1023\n",
        "sys/devices/system/cpu/online": f"0-{len(cpus) - 1}\n" if len(cpus) > 1 else "0\n",
        "sys/kernel/mm/transparent_hugepage/enabled": "[always] madvise never\n",
    }


def _topology(cpu: int, package: int, core: int, siblings: str) -> Tree:
    folder = f"sys/devices/system/cpu/cpu{cpu}/topology"
    return {
        f"{folder}/physical_package_id": f"{package}\n",
        f"{folder}/core_id": f"{core}\n",
        f"{folder}/thread_siblings_list": f"{siblings}\n",
    }


def _caches(cpu: int, caches: list[tuple[int, str, str, str]]) -> Tree:
    tree: Tree = {}
    for index, (level, kind, size, shared) in enumerate(caches):
        folder = f"sys/devices/system/cpu/cpu{cpu}/cache/index{index}"
        tree |= {
            f"{folder}/level": f"{level}\n",
            f"{folder}/type": f"{kind}\n",
            f"{folder}/size": f"{size}\n",
            f"{folder}/shared_cpu_list": f"{shared}\n",
        }
    return tree


GIB = 1024**3
PASSED_ON = ("PATH", "LD_LIBRARY_PATH")
SHELL = {
    "OMP_NUM_THREADS": "3",
    "OPENBLAS_CORETYPE": "Haswell",
    "LD_PRELOAD": f"/home/{USER_NAME}/libjemalloc.so",
    "LD_LIBRARY_PATH": f"/home/{USER_NAME}/lib",
    "MKL_NUM_THREADS": "",  # empty: as if it were not set
    "HOME": f"/home/{USER_NAME}",
    "TF_CLI_CONFIG_FILE": "another program's",
}
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
CALM = Sample(
    seconds=2.5,
    contention={"pressure_share": 0.01, "pressure_avg10": 0.0, "steal_share": 0.0, "others_cpus": 0.01},
    processes=(),
    throttle_events=None,
    readings=(READING,) * 5,
)


def laptop() -> Tree:
    """A hybrid processor on battery: four fast cores, four slow ones, hot, some of its memory swapped out."""
    tree = xeon(sockets=1, cores=8, smt=1)
    for cpu in range(8):
        folder = f"sys/devices/system/cpu/cpu{cpu}"
        tree[f"{folder}/cpufreq/scaling_governor"] = "powersave\n"
        tree[f"{folder}/thermal_throttle/core_throttle_count"] = "12\n"
        tree[f"{folder}/thermal_throttle/package_throttle_count"] = "0\n"
    return tree | {
        "proc/meminfo": (
            "MemTotal: 16000000 kB\nMemAvailable: 9000000 kB\nSwapTotal: 2097148 kB\nSwapFree: 1048574 kB\n"
        ),
        "proc/sys/vm/swappiness": "60\n",
        "sys/devices/cpu_core/cpus": "0-3\n",
        "sys/devices/cpu_atom/cpus": "4-7\n",
        "sys/class/power_supply/AC/type": "Mains\n",
        "sys/class/power_supply/AC/online": "0\n",
        "sys/class/power_supply/BAT0/type": "Battery\n",
        "sys/class/power_supply/BAT0/status": "Discharging\n",
        "sys/class/power_supply/mouse/type": "Battery\n",
        "sys/class/power_supply/mouse/scope": "Device\n",
    }


def server() -> Tree:
    """Two sockets with SMT, as recorded_trees makes it, with what a distribution leaves switched on."""
    return xeon() | {
        "proc/sys/kernel/numa_balancing": "1\n",
        "proc/sys/vm/swappiness": "10\n",
        "proc/loadavg": "0.10 0.20 0.30 1/300 4242\n",
        "sys/devices/system/cpu/smt/control": "on\n",
        "sys/devices/system/cpu/isolated": "\n",
        "sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count": "0\n",
    }


TREES: dict[str, Callable[[], Tree]] = {**ALL, "laptop": laptop, "server": server}


def diagnosed(folder: Path, tree: Tree, sample: Sample | None = CALM) -> dict[str, Finding]:
    findings = diagnose(replace(gather_facts(write_tree(folder, tree), SHELL, PASSED_ON), sample=sample))
    by_name = {finding.name: finding for finding in findings}
    assert len(by_name) == len(findings)
    return by_name


def of(findings: dict[str, Finding], severity: Severity) -> set[str]:
    return {name for name, finding in findings.items() if finding.severity is severity}
