"""A Slurm cluster of a test's own: controller and nodes on this machine, in a folder of its own, on
the loopback.

It has no accounting: `sacct` fails, as on many clusters. Its nodes share the machine and have names
of their own.
"""

import contextlib
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

_PATIENCE = 30.0
_PATH = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
_NEEDED = ("munged", "munge", "slurmctld", "slurmd", "sbatch", "squeue", "scontrol")
# Jobs begin within half a second and not two; a finished job stays in the queue; a job that lost
# its node is over.
_SETTINGS = """\
ClusterName=dlbench
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
AuthInfo=socket={folder}/munge.sock
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
SlurmctldPort={port}
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmdLogFile={folder}/slurmd-%n.log
SlurmdSpoolDir={folder}/spool-%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=batch_sched_delay=0,sched_interval=2,bf_interval=2,sched_min_interval=0
ReturnToService=1
JobRequeue=0
SlurmdTimeout=15
MinJobAge=86400
KillWait=2
SlurmdParameters=config_overrides
"""


class Cluster:
    """Nodes n1, n2, ... in the partition `main`, and `all` of the same nodes, which is not the
    default."""

    def __init__(self, folder: Path, nodes: int) -> None:
        self.folder = folder
        self.names = [f"n{number}" for number in range(1, nodes + 1)]
        self.environment = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf"), "PATH": _PATH}
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}
        for name in ("state", *(f"spool-{node}" for node in self.names)):
            (folder / name).mkdir()
        key = folder / "munge.key"
        key.write_bytes(secrets.token_bytes(1024))
        key.chmod(0o400)
        with contextlib.ExitStack() as held:
            sockets = [
                held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(nodes + 1)
            ]
            port, *ports = [bound.getsockname()[1] for bound in sockets]
        host = socket.gethostname().split(".")[0]
        text = _SETTINGS.format(
            host=host, user=pwd.getpwuid(os.getuid()).pw_name, folder=folder, port=port
        )
        for name, of_node in zip(self.names, ports, strict=True):
            text += (
                f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={of_node} CPUs=2 "
                "RealMemory=1000\n"
            )
        for partition, default in (("main", "YES"), ("all", "NO")):
            text += (
                f"PartitionName={partition} Nodes={','.join(self.names)} Default={default} "
                "State=UP\n"
            )
        (folder / "slurm.conf").write_text(text)
        # Who asks a controller that is away waits for twenty seconds, else; who asks a busy one
        # must have patience.
        (folder / "impatient.conf").write_text(f"{text}MessageTimeout=1\n")
        self.impatient = {**self.environment, "SLURM_CONF": str(folder / "impatient.conf")}

    def command(self, *words: str) -> str:
        done = self._ask(*words)
        assert done.returncode == 0, f"{' '.join(words)}: {done.stderr}"
        return done.stdout.strip()

    def _ask(self, *words: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            words, env=self.environment, cwd=self.folder, capture_output=True, text=True
        )

    def submit(self, script: str, *options: str) -> str:
        return self.command("sbatch", "--parsable", *options, "--wrap", script)

    def states(self) -> dict[str, str]:
        """Return each node's state; with `*` behind it where the node does not answer."""
        rows = self.command("sinfo", "-h", "-N", "-p", "main", "-o", "%N %T").splitlines()
        return dict(tuple(row.split()) for row in rows)  # type: ignore[misc]

    def start(self) -> None:
        """Start what does not run, and wait until the nodes take jobs."""
        own = {
            name: self.folder / f"munge.{name}" for name in ("sock", "key", "pid", "log", "seed")
        }
        options = []
        for name, path in own.items():
            option = "socket" if name == "sock" else f"{name}-file"
            options.append(f"--{option}={path}")
        # A parent folder that not everybody may enter, such as a temporary folder of one user, is
        # only a warning then.
        self._spawn("munged", "munged", "--foreground", "--force", "--num-threads=2", *options)
        self._wait(lambda: self._ask("munge", "-n", "-S", str(own["sock"])).stdout != "", "munged")
        self.start_controller()
        self._start_nodes(*self.names)

    def restore(self) -> None:
        """Bring back what a test stopped, and end its jobs: every node is idle then."""
        self.start()
        self._end_jobs()
        for name, state in self.states().items():
            if state.startswith(("down", "drain")):  # any other passes by itself
                self.resume(name)
        self._wait(lambda: set(self.states().values()) == {"idle"}, "slurmctld")

    def set_down(self, node: str) -> None:
        """Take a node out as an administrator does: its job ends at once as NODE_FAIL."""
        self.command("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=test")

    def resume(self, node: str) -> None:
        self.command("scontrol", "update", f"NodeName={node}", "State=RESUME")
        self._end(
            f"slurmd-{node}", signal.SIGTERM
        )  # a daemon that starts reports at once; else it is asked in seconds
        self._start_nodes(node)

    def _start_nodes(self, *names: str) -> None:
        for name in names:
            self._spawn(f"slurmd-{name}", "slurmd", "-D", "-N", name)
        for name in names:

            def answers(name: str = name) -> bool:
                state = self.states()[name]
                return not state.endswith("*") and state != "unknown"

            self._wait(answers, f"slurmd-{name}")

    def stop_controller(self) -> None:
        self._end("slurmctld", signal.SIGTERM)

    def start_controller(self) -> None:
        self._spawn("slurmctld", "slurmctld", "-D")
        self._wait(lambda: "UP" in self._ask("scontrol", "ping").stdout, "slurmctld")

    def stop(self) -> None:
        """End jobs, daemons, and every process that is left of either."""
        if "slurmctld" in self._daemons:
            with contextlib.suppress(
                AssertionError
            ):  # a cluster that a test broke is ended all the same
                self._end_jobs()
            self._ask("scontrol", "shutdown")  # the nodes too, but for the processes of jobs
        for name in [*self._daemons][::-1]:
            self._end(name, signal.SIGTERM)
        for process in filter(self._owns, psutil.process_iter()):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
                process.wait(_PATIENCE)

    def _owns(self, process: psutil.Process) -> bool:
        # What starts a job's step writes its title over its environment, but its spool is open.
        try:
            if process.environ().get("SLURM_CONF", "").startswith(f"{self.folder}/"):
                return process.pid != os.getpid()
            words = [
                process.cwd(),
                *process.cmdline(),
                *(file.path for file in process.open_files()),
            ]
        except (psutil.Error, OSError):
            return False
        return any(str(self.folder) in word for word in words)

    def _spawn(self, name: str, *words: str) -> None:
        running = self._daemons.get(name)
        if running is None or running.poll() is not None:
            with (self.folder / f"{name}.out").open("ab") as output:
                streams = {
                    "stdin": subprocess.DEVNULL,
                    "stdout": output,
                    "stderr": subprocess.STDOUT,
                }
                self._daemons[name] = subprocess.Popen(
                    words, cwd=self.folder, env=self.environment, **streams
                )

    def _end(self, name: str, how: signal.Signals) -> None:
        daemon = self._daemons.pop(name, None)
        if daemon is not None:
            daemon.send_signal(how)
            try:
                daemon.wait(_PATIENCE)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()

    def _end_jobs(self) -> None:
        unfinished = (
            "squeue",
            "-h",
            "-t",
            "PENDING,CONFIGURING,RUNNING,SUSPENDED,COMPLETING",
            "-o",
            "%A",
        )
        if jobs := self.command(*unfinished).split():
            self._ask("scancel", "-Q", *jobs)
            self._wait(lambda: not self.command(*unfinished), "slurmctld")

    def _wait(self, condition: Callable[[], bool], daemon: str) -> None:
        until = time.monotonic() + _PATIENCE
        while not condition():
            ended = self._daemons[daemon].poll() is not None or time.monotonic() > until
            assert not ended, f"{daemon}: {(self.folder / f'{daemon}.out').read_text()}"
            time.sleep(0.02)


@pytest.fixture(scope="session")
def started_slurm() -> Iterator[Cluster]:
    """Give a Slurm cluster of the tests' own, or skip; its tests are of one group, so that one
    worker starts it."""
    if missing := [name for name in _NEEDED if shutil.which(name, path=_PATH) is None]:
        pytest.skip(
            f"no {missing[0]} here (Debian: apt-get install slurmctld slurmd slurm-client munge)"
        )
    folder = Path(tempfile.mkdtemp(prefix="dlbench-slurm-"))
    folder.chmod(0o755)  # munge refuses a socket that not everybody reaches
    cluster = Cluster(folder, nodes=2)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def slurm(started_slurm: Cluster) -> Cluster:
    """Give the cluster with idle nodes, whatever the last test did to it."""
    started_slurm.restore()
    return started_slurm
