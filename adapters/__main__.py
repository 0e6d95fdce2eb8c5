"""Start-up of the guest: ``<python> -I <path>/adapters CONTROL_DIR``.

Run by path, this folder would stand first on ``sys.path``, where ``adapters/tensorflow`` would
shadow TensorFlow. Therefore it is removed, and the guest's modules are imported under a private
package name instead.
"""

import ctypes
import os
import signal
import sys
import types

PACKAGE = "_dlbench_guest"


def _die_with_parent() -> None:
    """Ask the kernel to kill this process when the host dies.

    An orphan would disturb the next measurement.
    """
    set_parent_death_signal = 1  # PR_SET_PDEATHSIG, Linux
    try:
        ctypes.CDLL(None).prctl(set_parent_death_signal, int(signal.SIGKILL))
    except (OSError, AttributeError):
        pass  # not Linux: the host's own clean-up must do


def main() -> int:
    """Run the launch in the control directory that the first argument names.

    Further arguments make it one of the launch's further workers.
    """
    _die_with_parent()
    folder = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != folder]
    package = types.ModuleType(PACKAGE)
    package.__path__ = [folder]
    sys.modules[PACKAGE] = package
    arguments = sys.argv[1:]
    is_further_worker = len(arguments) == 3 and arguments[1] == "--worker"
    if len(arguments) != 1 and not is_further_worker:
        sys.stderr.write("usage: python -I adapters CONTROL_DIR [--worker NUMBER]\n")
        return 2
    directory = arguments[0]
    number_of_worker = int(arguments[2]) if is_further_worker else 0
    # Before NumPy is imported: its thread pools count the CPUs of this process once.
    evidence = __import__(PACKAGE + ".launch.evidence", fromlist=["evidence"])
    evidence.bind(directory, number_of_worker)
    if not number_of_worker:
        # The first worker reports the descendants of all.
        evidence.adopt_orphans()
    worker = __import__(PACKAGE + ".launch.worker", fromlist=["worker"])
    code = worker.join(directory, number_of_worker) if number_of_worker else worker.run(directory)
    sys.stdout.flush()
    sys.stderr.flush()
    # Frameworks' thread pools have hung or crashed at interpreter exit. The answer is on disk, so
    # leave at once.
    os._exit(code)


if __name__ == "__main__":
    sys.exit(main())
