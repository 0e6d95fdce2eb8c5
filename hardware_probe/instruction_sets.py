"""Names: of instruction sets that numerical kernels choose by, and of Arm cores, which the kernel numbers."""

# The kernel's flag -> the name shown. Only what a BLAS or a framework dispatches on: a longer list would make
# the fingerprint move with kernels that learn to name further flags of the same CPU.
KNOWN = {
    # x86
    "sse4_2": "sse4_2",
    "avx": "avx",
    "f16c": "f16c",
    "fma": "fma",
    "avx2": "avx2",
    "avx_vnni": "avx_vnni",
    "avx_vnni_int8": "avx_vnni_int8",
    "avx_ne_convert": "avx_ne_convert",
    "avx512f": "avx512f",
    "avx512bw": "avx512bw",
    "avx512dq": "avx512dq",
    "avx512vl": "avx512vl",
    "avx512_vnni": "avx512_vnni",
    "avx512_bf16": "avx512_bf16",
    "avx512_fp16": "avx512_fp16",
    "amx_tile": "amx_tile",
    "amx_int8": "amx_int8",
    "amx_bf16": "amx_bf16",
    "amx_fp16": "amx_fp16",
    # Arm
    "neon": "neon",
    "asimd": "neon",
    "asimdhp": "fp16",
    "asimddp": "dotprod",
    "i8mm": "i8mm",
    "bf16": "bf16",
    "sve": "sve",
    "sve2": "sve2",
    "sme": "sme",
    "sme2": "sme2",
}

# (implementer, part), as in the kernel's arch/arm64/include/asm/cputype.h, for the cores of servers and
# boards.
_ARM_CORES = {
    ("0x41", "0xd03"): "Arm Cortex-A53",
    ("0x41", "0xd07"): "Arm Cortex-A57",
    ("0x41", "0xd08"): "Arm Cortex-A72",
    ("0x41", "0xd0b"): "Arm Cortex-A76",
    ("0x41", "0xd0c"): "Arm Neoverse-N1",
    ("0x41", "0xd40"): "Arm Neoverse-V1",
    ("0x41", "0xd49"): "Arm Neoverse-N2",
    ("0x41", "0xd4f"): "Arm Neoverse-V2",
    ("0x43", "0x0af"): "Cavium ThunderX2",
    ("0x46", "0x001"): "Fujitsu A64FX",
    ("0x48", "0xd01"): "HiSilicon Kunpeng-920",
    ("0xc0", "0xac3"): "Ampere-1",
    ("0xc0", "0xac4"): "Ampere-1A",
}


def instruction_sets(flags: frozenset[str]) -> tuple[str, ...]:
    """The known instruction sets among the kernel's `flags`, sorted by name."""
    return tuple(sorted({name for flag, name in KNOWN.items() if flag in flags}))


def arm_model(implementer: str | None, part: str | None) -> str | None:
    """The name of an Arm core, its numbers where it is not known, None where there are no numbers."""
    if implementer is None or part is None:
        return None
    return _ARM_CORES.get((implementer, part), f"Arm implementer {implementer} part {part}")
