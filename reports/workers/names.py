"""How several workers are named: short in a head, in words in a sentence."""

LEGEND = (
    "xN: N workers train on equal parts of the mini-batch together; on the CPU each with so many threads, on GPUs each "
    "on one of its own, the named one being the first"
)


def with_workers(name: str, world_size: int) -> str:
    """Return the name of a column: "4", of two workers "4 x2"."""
    return name if world_size == 1 else f"{name} x{world_size}"


def times_workers(world_size: int) -> str:
    """Return what follows threads or a device in a sentence: nothing, of two workers " x 2 workers"."""
    return "" if world_size == 1 else f" x {world_size} workers"
