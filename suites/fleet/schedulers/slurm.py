"""Jobs on a Slurm cluster: submitted by submitit, looked after by squeue and sinfo, with or without accounting."""

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from ...errors import FrameworkEnvironmentError, UsageError
from . import slurm_nodes, slurm_programs, submitted
from .scheduler import ENDED, GONE, RUNNING, UNKNOWN, WAITING, Seen, State, Wanted
from .slurm_options import SlurmOptions, partition_asked
from .slurm_programs import CannotAskError

_OF_STATE: dict[State, str] = {
    WAITING: "PENDING CONFIGURING REQUEUED REQUEUE_FED REQUEUE_HOLD RESV_DEL_HOLD SPECIAL_EXIT POWER_UP_NODE",
    # One that is completing has processes left; one that is suspended goes on some time.
    RUNNING: "RUNNING COMPLETING SUSPENDED STOPPED SIGNALING STAGE_OUT RESIZING UPDATE_DB",
    ENDED: "COMPLETED FAILED CANCELLED TIMEOUT DEADLINE NODE_FAIL BOOT_FAIL LAUNCH_FAILED RECONFIG_FAIL OUT_OF_MEMORY"
    " PREEMPTED REVOKED",
}
_STATES = {word: state for state, words in _OF_STATE.items() for word in words.split()}
_AWAY = ("Unable to contact", "Socket timed out", "Connection refused", "Protocol authentication")


class Slurm:
    """Slurm as a Scheduler; pickles and logs of its jobs lie in a folder that every node can read and write."""

    def __init__(self, folder: Path, options: SlurmOptions | None = None) -> None:
        self._folder = folder.absolute()
        self._options = options or SlurmOptions()

    def nodes(self, count: int | None, named: Sequence[str]) -> list[str]:
        """Return nodes of the partition; raises FrameworkEnvironmentError too, where Slurm cannot be asked."""
        submitted.need_submitit()  # before anything is kept of a fleet
        return slurm_nodes.chosen(
            slurm_nodes.nodes_of(partition_asked(self._options)), count, slurm_nodes.expanded(named)
        )

    def submit(self, wanted: Wanted) -> str:
        """Submit a job to one node; its handle is the number that Slurm gives it."""
        partition_asked(self._options)
        submitted.need_submitit()
        import submitit

        # The shell that sbatch starts becomes the command: it alone gets the signal before the time limit.
        python = f"exec {shlex.quote(self._options.python or sys.executable)}"
        try:
            executor = submitit.SlurmExecutor(self._folder, python=python)
            executor.update_parameters(**self._options.parameters(wanted.number, wanted.node))
            return submitted.submit(executor, wanted.command).job_id
        except RuntimeError as error:  # submitit's own errors too: refused, or no srun here
            raise _refused(slurm_programs.last_words(str(error)), wanted) from error
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            raise FrameworkEnvironmentError(
                f"Job {wanted.number} could not be submitted: {where}{error.strerror}."
            ) from error

    def seen(self, handles: Sequence[str]) -> dict[str, Seen]:
        """Return what the controller tells of each job; it forgets one some minutes after its end."""
        try:
            known = slurm_programs.queue(handles)
        except CannotAskError as error:
            return dict.fromkeys(handles, Seen(UNKNOWN, str(error)))
        return {handle: _seen(*known[handle]) if handle in known else Seen(GONE) for handle in handles}

    def cancel(self, handles: Sequence[str]) -> None:
        """End jobs by scancel: SIGTERM, and SIGKILL after the cluster's KillWait."""
        slurm_programs.cancel(handles)

    def log(self, handle: str) -> Path | None:
        """Return the file that the node writes to while the job runs."""
        return submitted.log_of(self._folder, handle)

    def usable(self, node: str) -> bool:
        """As the protocol has it; true where Slurm cannot be asked, for then nothing speaks against the node."""
        try:
            known = slurm_nodes.nodes_of(partition_asked(self._options)).get(node)
        except CannotAskError:
            return True
        return known is not None and known.usable


def _seen(state: str, node: str, reason: str) -> Seen:
    words = state if reason in ("None", "") else f"{state} ({reason})"
    return Seen(_STATES.get(state, UNKNOWN), words, node)


def _refused(words: str, wanted: Wanted) -> UsageError | FrameworkEnvironmentError:
    told = f"Slurm refused job {wanted.number}{f' on {wanted.node}' if wanted.node else ''}: {words}."
    if any(sign in words for sign in (*_AWAY, "srun")):
        return FrameworkEnvironmentError(told)
    return UsageError(f"{told} Check the partition, the node and the other options for Slurm.")
