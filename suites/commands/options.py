"""The options that several commands of the command line share, with their help."""

from dataclasses import dataclass
from typing import Annotated

import typer

from dlbench.adapters.protocol import PRECISIONS

from ..planning import external_adapters
from ..planning import values as axes
from ..planning.plan import Choices

Networks = Annotated[str, typer.Option("--networks", help="Networks, comma-separated: fcn5,resnet50.")]
Frameworks = Annotated[
    str,
    typer.Option(
        "--frameworks", help="Rows, comma-separated: `torch` (default mode), `torch:compile`, or `torch:*` for all."
    ),
]
Threads = Annotated[
    str,
    typer.Option(
        "--threads", help="Thread counts: `1,2,4-8`, words such as `cores`, `2*cores`, `4*cpus`, ladders: `1..4*cpus`."
    ),
]
ThreadsLimit = Annotated[
    str, typer.Option("--threads-limit", help="Largest thread count taken from the suite (table4: `4*cpus`).")
]
BatchSizes = Annotated[str, typer.Option("--batch-sizes", help="Mini-batch sizes: 64, 16,32,64, or a ladder, 16..128.")]
Devices = Annotated[
    str,
    typer.Option(
        "--devices", help="Devices: `cpu`, `cuda:0`, `cuda:all`, `gpus` (all there are, if any), UUIDs: `GPU-...`."
    ),
]
DeviceThreads = Annotated[
    str,
    typer.Option("--device-threads", help="Thread count of cells on a GPU, where threads only start work: `cores`."),
]
Precisions = Annotated[
    str, typer.Option("--precisions", help=f"Precisions of the arithmetic: {', '.join(PRECISIONS)}.")
]
Placements = Annotated[
    str,
    typer.Option(
        "--placements",
        help="Where mini-batches lie: `resident` on the GPU, or copied in each step from `pinned`, `pageable` memory.",
    ),
]
Affinity = Annotated[
    str,
    typer.Option(
        "--affinity",
        help="CPUs of the threads: `oversubscribed` (all), `bound` (as many as threads), or `bound,oversubscribed`.",
    ),
]
WorldSizes = Annotated[
    str,
    typer.Option(
        "--world-sizes",
        help="Workers that train on equal parts of a mini-batch together, each on a GPU or with its own threads: 1,2.",
    ),
]
Launches = Annotated[
    str,
    typer.Option(
        "--launches", metavar="N|N-M", help="Launches (fresh processes) per cell: 5, or 5-20 until it is precise."
    ),
]
Precision = Annotated[
    str,
    typer.Option(
        "--precision", help="Half-width of a cell's interval at which launches end: 1% (2% with a range; alone: 5-20)."
    ),
]
Steps = Annotated[int | None, typer.Option("--steps", help="Timed steps per launch, at most.")]
CellBudget = Annotated[
    str, typer.Option("--cell-budget", help="Time for one launch: 60s, 10m. One that lasts longer is ended: timed out.")
]
Python = Annotated[
    list[str] | None,
    typer.Option(
        "--python",
        metavar="NAME=PATH",
        help="Your own interpreter: `torch=/path/to/python`, or `torch-nightly:torch=/path` for a row of its own.",
    ),
]
Adapter = Annotated[
    list[str] | None,
    typer.Option(
        "--adapter",
        metavar="NAME=FOLDER",
        callback=external_adapters.register,
        is_eager=True,
        help="An adapter of your own, outside dlbench: `my_framework=path/to/folder` (adapters/TUTORIAL.md).",
    ),
]
Seed = Annotated[int | None, typer.Option("--seed", help="Seed of the launching order.")]
StoreFile = Annotated[
    str,
    typer.Option("--store", envvar="DLBENCH_STORE", metavar="FILE", help="Result store: a file, or a database URL."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]

DEFAULT_STORE = "dlbench.sqlite"


@dataclass(frozen=True)
class Budget:
    """A total budget in seconds; None: without end."""

    seconds: float | None

    @classmethod
    def parse(cls, text: str) -> "Budget":
        """Read "10m"; the empty text means no budget."""
        return cls(axes.duration(text) if text else None)


def choices(
    networks: str = "",
    frameworks: str = "",
    threads: str = "",
    threads_limit: str = "",
    batch_sizes: str = "",
    devices: str = "",
    affinity: str = "",
    launches: str = "",
    precision: str = "",
    steps: int | None = None,
    cell_budget: str = "",
    python: list[str] | None = None,
    adapter: list[str] | None = None,
    precisions: str = "",
    placements: str = "",
    device_threads: str = "",
    world_sizes: str = "",
) -> Choices:
    """Return what the options say; raises UsageError for a --python that cannot be read."""
    builds = tuple(axes.build(text) for text in python or [])
    narrowed = networks, frameworks, threads, threads_limit, batch_sizes, devices, affinity
    joining = tuple(text.partition("=")[0] for text in adapter or [])
    on_gpus = precisions, placements, device_threads
    return Choices(*narrowed, launches or None, precision, steps, cell_budget, builds, joining, *on_gpus, world_sizes)
