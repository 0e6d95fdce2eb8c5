"""The runs that the stores hold, in their order: fixed with the stores."""

CPU_RUNS = (
    "20261122T140431-a3f7a8",
    "20261122T141202-886d39",
    "20261122T141412-36446c",
    "20261122T141757-b8e102",
    "20261122T142025-b41c93",
    "20261122T142512-0baec2",
    "20261122T142939-45398e",
)
"""Two of all rows, one to a precision, threads bound and not, workers, mini-batches, an unfinished `quick`."""
GATES_RUNS = (
    "20261122T140656-32ed51",
    "20261122T140748-db1728",
    "20261122T140802-b72f26",
    "20261122T140810-4f8fb4",
    "20261122T140815-c4ddf4",
    "20261122T140846-86b0c8",
)
"""Gates: slower, the same, faster, broken; comparisons: slower, and one whose budget was spent."""
