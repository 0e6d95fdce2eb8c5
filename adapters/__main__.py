"""Start-up of the guest: ``<python> -I <path>/adapters CONTROL_DIR``.

Run by path, this folder would stand first on ``sys.path``, where ``adapters/tensorflow`` would
shadow TensorFlow: it is taken off, and the guest's modules are imported under a private package
name instead.
"""

import ctypes
import os
import signal
import sys
import types

PACKAGE = "_dlbench_guest"


def _die_with_parent() -> None:
    """Ask the kernel to kill this process when the host dies, lest an orphan disturb the next
    measurement.
    """
    set_parent_death_signal = 1  # PR_SET_PDEATHSIG, Linux
    try:
        ctypes.CDLL(None).prctl(set_parent_death_signal, int(signal.SIGKILL))
    except (OSError, AttributeError):
        pass  # not Linux: the host's own clean-up must do


def main() -> int:
    """Run the launch in the control directory that the first argument names, or be one of its
    further workers.
    """
    _die_with_parent()
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != here]
    package = types.ModuleType(PACKAGE)
    package.__path__ = [here]
    sys.modules[PACKAGE] = package
    directory, number = sys.argv[1:2], sys.argv[3:]
    if not directory or sys.argv[2:3] != (["--worker"] if number else []) or len(number) > 1:
        sys.stderr.write("usage: python -I adapters CONTROL_DIR [--worker NUMBER]\n")
        return 2
    number_of_worker = int(number[0]) if number else 0
    # Before NumPy is imported: its thread pools count the CPUs of this process once.
    evidence = __import__(PACKAGE + ".launch.evidence", fromlist=["evidence"])
    evidence.bind(directory[0], number_of_worker)
    if not number_of_worker:
        # The first worker reports the descendants of all.
        evidence.adopt_orphans()
    worker = __import__(PACKAGE + ".launch.worker", fromlist=["worker"])
    code = (
        worker.join(directory[0], number_of_worker)
        if number_of_worker
        else worker.run(directory[0])
    )
    sys.stdout.flush()
    sys.stderr.flush()
    # Frameworks' thread pools have hung or crashed at interpreter exit; the outcome is on disk, so
    # leave at once.
    os._exit(code)


if __name__ == "__main__":
    sys.exit(main())
