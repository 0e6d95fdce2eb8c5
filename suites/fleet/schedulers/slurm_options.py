"""How a fleet's jobs are asked of Slurm: the options a user has, as submitit takes them."""

import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...errors import UsageError

#: Seconds before the time limit at which a job gets SIGTERM, so that `dlbench run` stores what it has and ends itself.
_NOTICE_SECONDS = 120
#: As environment variables of sbatch.
_NEVER_FROM_OUTSIDE = ("ARRAY_INX", "ERROR", "INPUT", "OPEN_MODE", "OUTPUT", "REQUEUE", "SIGNAL", "WAIT")
_KEY = re.compile(r"[a-z][a-z0-9-]*")
#: What a fleet rests on: one job for each node, one log for each job, no second try by Slurm itself.
_OF_THE_FLEET = {
    "array", "error", "input", "job-name", "nodelist", "nodes", "open-mode", "output", "parsable", "requeue", "signal",
    "wait", "wrap",
}  # fmt: skip
_OPTION_OF_ITS_OWN = ("account", "exclusive", "partition", "qos", "time")


@dataclass(frozen=True)
class SlurmOptions:
    """What a user asks of Slurm for every job of a fleet; "" and None leave it to the cluster."""

    partition: str = ""
    exclusive: bool = True
    """The job has its node, with all CPUs and all memory, to itself."""
    minutes: float | None = None
    """The time limit of one job."""
    account: str = ""
    qos: str = ""
    further: Mapping[str, str] = field(default_factory=dict)
    """Options of sbatch by their long name; "" for one that takes no value."""
    python: str = ""
    """The interpreter on the nodes that has submitit; "" = this process's own."""

    def parameters(self, number: int, node: str) -> dict[str, Any]:
        """Return what SlurmExecutor.update_parameters takes, for one job."""
        # sbatch alone starts the job: a step by srun may be bound to some CPUs, and its output takes a detour.
        # None is left to the cluster, also what submitit has defaults for: five minutes, and a key for accounting.
        return {
            "job_name": f"dlbench-{number}",
            "partition": self.partition or None,
            "nodes": 1,
            "nodelist": node or None,
            "exclusive": True if self.exclusive else None,
            "mem": "0" if self.exclusive else None,
            "time": None if self.minutes is None else max(1, math.ceil(self.minutes)),
            "account": self.account or None,
            "qos": self.qos or None,
            "wckey": None,
            "stderr_to_stdout": True,
            "use_srun": False,
            "additional_parameters": {
                "ntasks": 1,
                "no-requeue": True,
                "signal": f"B:TERM@{_NOTICE_SECONDS}",
                **{key: value or True for key, value in self.further.items()},
            },
        }


def partition_asked(options: SlurmOptions) -> str:
    """Return the partition that jobs will go to; "" = the cluster's default. Raises UsageError.

    sbatch takes an environment variable before what its script says: one that contradicts is refused.
    """
    given = {"PARTITION": options.partition, "ACCOUNT": options.account, "QOS": options.qos}
    given["TIMELIMIT"] = "" if options.minutes is None else "set"
    contradict = [name for name, value in given.items() if value and os.environ.get(f"SBATCH_{name}", value) != value]
    contradict += [name for name in _NEVER_FROM_OUTSIDE if f"SBATCH_{name}" in os.environ]
    if contradict:
        raise UsageError(f"The environment variable SBATCH_{contradict[0]} would change every job. Unset it.")
    return options.partition or os.environ.get("SBATCH_PARTITION", "")


def read_further(texts: Sequence[str]) -> dict[str, str]:
    """Return the options that a user gave as KEY=VALUE, or as KEY alone; raises UsageError."""
    found = {}
    for text in texts:
        key, _, value = text.partition("=")
        key = key.strip().removeprefix("--").replace("_", "-")
        if not _KEY.fullmatch(key) or not value.isprintable():
            raise UsageError(
                f"--slurm-option {text!r} is no option of sbatch: write KEY=VALUE, such as constraint=zen4."
            )
        if key in _OPTION_OF_ITS_OWN:
            raise UsageError(f"--slurm-option {key}: dlbench has an option of its own for it; see --help.")
        if key.removeprefix("no-") in _OF_THE_FLEET:
            raise UsageError(f"--slurm-option {key}: dlbench sets it itself for each job. Leave it out.")
        found[key] = value
    return found
