"""The 2016 paper's own Table 4, in the form that our reports take.

Shi, Wang, Xu, Chu, "Benchmarking State-of-the-Art Deep Learning Software Tools", 2016, arXiv:1608.07249. One mean per
cell and no spread, so nothing here has an interval; section 4 of the paper says what each "-" is. Its frameworks each
ran their own scripts: parity is unknown, and the scripts are known to have differed.
"""

from collections.abc import Mapping

from dlbench.adapters import axes
from dlbench.adapters.protocol import Status
from dlbench.reports.against.analysis import CorePeak, Published
from dlbench.reports.against.read_tables import lines_of
from dlbench.reports.cells import NO_THREADS, CellResult, Matrix, assemble
from dlbench.reports.flags import NEAR_PEAK, Flag
from dlbench.reports.statistics import published
from dlbench.reports.storage.hosts import Host
from dlbench.reports.storage.networks import FIRST

NAME = "shi2016"
GPU_PEAKS = {"gtx980": 4.9e12, "gtx1080": 8.87e12, "tesla_k80": 2.8e12}
"""FLOP/s in single precision, theoretical, as the paper gives them (of one of the K80's two GPUs)."""
DOUBTFUL_SHARE = 0.90
"""Of a GPU's theoretical peak: above this share, training steps are doubtful (an FFT may save arithmetic)."""
HOLES = {
    "unsupported": Status.UNSUPPORTED,
    "crashed": Status.CRASHED,
    "timed out": Status.TIMED_OUT,
    "out of memory": Status.OUT_OF_MEMORY,
}
"""The first words of a reason in the data."""
SOURCE = "Shi, Wang, Xu, Chu, Benchmarking State-of-the-Art Deep Learning Software Tools, 2016, Table 4"
CAVEAT = "Each framework ran its own script there, and none was checked against reference mathematics."

HOSTS = {
    "desktop_i7_3820": Host(
        "shi2016:i7-3820",
        "Shi 2016 desktop, i7-3820 (4 cores, 8 threads)",
        4,
        8,
        8.0,
        (("CPU", "Intel Core i7-3820"),),
        8,
    ),
    "server_2x_e5_2630v3": Host(
        "shi2016:2xE5-2630v3",
        "Shi 2016 server, 2 x E5-2630 v3 (16 cores, 32 threads)",
        16,
        32,
        32.0,
        (("CPU", "2 x Intel Xeon E5-2630 v3"),),
        32,
    ),
    "gtx980": Host("shi2016:gtx980", "Shi 2016 GTX 980", description=(("GPU", "NVIDIA GTX 980"),)),
    "gtx1080": Host("shi2016:gtx1080", "Shi 2016 GTX 1080", description=(("GPU", "NVIDIA GTX 1080"),)),
    "tesla_k80": Host("shi2016:k80", "Shi 2016 Tesla K80", description=(("GPU", "NVIDIA Tesla K80, one of two GPUs"),)),
}

# What they are called in the catalogue of frameworks, and to people; the paper's "torch" is the Lua one.
FRAMEWORKS: Mapping[str, tuple[str, str]] = {
    "caffe": ("caffe", "Caffe"),
    "cntk": ("cntk", "CNTK"),
    "tensorflow": ("tensorflow", "TensorFlow"),
    "torch": ("torch7", "Torch7"),
}

# Theoretical, single precision. Clocks as Intel's product pages give them; the clock under vector load was not recorded
# in 2016, so a peak is a range.
PEAKS: Mapping[str, CorePeak] = {
    HOSTS["desktop_i7_3820"].fingerprint: CorePeak(
        16 * 3.6e9,
        16 * 3.8e9,
        "Sandy Bridge-E, AVX: 8 multiplications and 8 additions a cycle; 3.6 GHz base to 3.8 GHz turbo",
    ),
    HOSTS["server_2x_e5_2630v3"].fingerprint: CorePeak(
        32 * 2.1e9,
        32 * 3.2e9,
        "Haswell-EP, AVX2: two fused multiply-adds of 8 a cycle; 2.1 GHz AVX base to 3.2 GHz highest turbo (2.4 GHz is "
        "the base without AVX)",
    ),
}


def publication() -> Published:
    """Return Table 4 with what a comparison with it needs: what its frameworks are, and its machines' peaks."""
    return Published("2016", table4(), FRAMEWORKS, PEAKS)


def table4() -> Matrix:
    """Return the paper's Table 4 as a matrix, its desktop, server and GPUs as machines."""
    cells = [_cell(line) for line in lines_of("shi2016_table4.csv")]
    return assemble(cells, {host.fingerprint: host for host in HOSTS.values()}, [f"Source: {SOURCE}. {CAVEAT}"])


def _cell(line: dict[str, str]) -> CellResult:
    host = HOSTS[line["platform"]]
    threads = int(line["threads"]) if line["threads"] else None
    batch = FIRST[line["network"]].batch_size
    seconds = published(float(line["seconds_per_minibatch"])) if line["seconds_per_minibatch"] else None
    kind, _, why = line["hole"].partition(": ")
    rate = FIRST[line["network"]].family.training_flops(batch) / seconds.median if seconds else None
    return CellResult(
        machine=host.fingerprint,
        cell=axes.BLANK._replace(
            network=line["network"],
            batch_size=batch,
            framework=line["framework"],
            mode="2016",
            device="cpu" if threads else "gpu",
            threads=threads or NO_THREADS,
        ),
        status=Status.OK if seconds else HOLES[kind],
        reason=f"{why}, says the paper" if why else "",
        flags=_doubts(rate, GPU_PEAKS.get(line["platform"])),
        seconds=seconds,
        items_per_second=batch / seconds.median if seconds else None,
        run=NAME,
    )


def _doubts(rate: float | None, peak: float | None) -> tuple[Flag, ...]:
    if rate is None or peak is None or rate <= DOUBTFUL_SHARE * peak:
        return ()
    return (Flag(NEAR_PEAK, f"{rate * 1e-12:.2f} TFLOP/s are {rate / peak:.0%} of the GPU's theoretical peak"),)
