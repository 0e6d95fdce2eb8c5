"""Commits of a repository of the user's own, each built in a git worktree: their files and index are never touched.

The worktrees of a repository lie in a folder of dlbench's own. A commit counts as built once the file beside its
worktree says so, which is written last. They are removed when the bisection is done, and what was left by one that was
killed is removed by the next; with --resume those that are built are used.
"""

import contextlib
import hashlib
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import filelock
import psutil

from dlbench.reports.errors import in_one_line

from ..errors import FrameworkEnvironmentError, UsageError
from .folders import home, make_folder, write_whole, written

_SHORT = 10
"""Digits of a commit's name."""
_SUPERVISOR = Path(__file__).resolve().parents[1] / "run" / "supervisor.py"
_LAST_WORDS = 200
"""Characters of a build's last line of output in the reason why it failed."""


@dataclass(frozen=True)
class Commit:
    """A commit of the first-parent history."""

    digest: str
    subject: str

    @property
    def name(self) -> str:
        """Its abbreviated digest."""
        return self.digest[:_SHORT]


class Repository:
    """A git repository, by any folder within it."""

    def __init__(self, folder: str) -> None:
        """Find the repository; raises UsageError if the folder has none or git is missing."""
        self._folder = Path(folder).expanduser()
        found = self._git("rev-parse", "--git-common-dir")
        if found is None:
            raise UsageError(f"--repo: {folder} is not a git repository. Give the folder of one.")
        self.place = (self._folder / found.strip()).resolve()

    def _git(self, *words: str) -> str | None:
        """Return what git says; None where it fails."""
        # A hook of the repository would run with each worktree; variables of a hook would mean another repository.
        settings = ("-c", f"core.hooksPath={os.devnull}", "-c", "log.showSignature=false")
        variables = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        try:
            done = subprocess.run(
                ["git", "-C", str(self._folder), *settings, *words],
                capture_output=True,
                env={**variables, "LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0"},
                stdin=subprocess.DEVNULL,
            )
        except OSError as error:
            raise UsageError("--repo needs git, which is not installed here.") from error
        return done.stdout.decode(errors="replace") if done.returncode == 0 else None

    def commits(self, good: str, bad: str) -> list[Commit]:
        """Return the first-parent commits from one revision to another, both included; raises UsageError."""
        ends = []
        for option, revision in (("--good", good), ("--bad", bad)):
            found = self._git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
            if found is None:
                raise UsageError(f"{option}: git knows no revision {revision!r} there. `git log --oneline` lists them.")
            ends.append(found.strip())
        first, last = ends
        if first == last:
            raise UsageError(f"--good and --bad are the same commit, {first[:_SHORT]}. Give two.")
        if self._git("merge-base", "--is-ancestor", first, last) is None:
            if self._git("merge-base", "--is-ancestor", last, first) is not None:
                raise UsageError(f"--good {good} is a later commit than --bad {bad}. Exchange them.")
            raise UsageError(
                f"--good {good} is not an ancestor of --bad {bad}. Give their common ancestor as the good one: "
                f"git merge-base {good} {bad}."
            )
        lines = (
            self._git("log", "--first-parent", "--reverse", "--format=%H %P%x09%s", f"{first}..{last}") or ""
        ).split("\n")
        listed = [line.partition("\t") for line in lines if line]
        if not listed or listed[0][0].split()[1:2] != [first]:
            raise UsageError(
                f"--good {good} lies on a branch that was merged before --bad {bad}. Name a commit of the first-parent "
                "history: git log --first-parent --oneline."
            )
        subject = (self._git("log", "-1", "--format=%s", first) or "").strip()
        return [Commit(first, subject), *(Commit(digests.split()[0], words) for digests, _, words in listed)]

    def is_dirty(self) -> bool:
        """Tell whether files differ from the newest commit."""
        return bool((self._git("status", "--porcelain", "--untracked-files=no") or "").strip())

    def add_worktree(self, place: Path, commit: Commit) -> None:
        """Check a commit out in a new folder; raises FrameworkEnvironmentError."""
        if self._git("worktree", "add", "--force", "--detach", str(place), commit.digest) is None:
            raise FrameworkEnvironmentError(
                f"The commit {commit.name} cannot be checked out in {place}: no room there, or files are missing."
            )

    def remove_worktrees(self, folders: Iterable[Path]) -> None:
        """Remove worktrees."""
        for each in folders:
            self._git("worktree", "remove", "--force", "--force", str(each))
            shutil.rmtree(each, ignore_errors=True)


class Worktrees:
    """The worktrees of one repository's bisection; a context manager that lets no second one in."""

    def __init__(self, repository: Repository, command: str, limit: float, keep: bool) -> None:
        """Take the build command, its time limit in seconds, and whether what was built before is kept."""
        self._repository, self._command, self._limit, self._keep = repository, command, limit, keep
        self.folder = home() / "bisect" / hashlib.sha256(os.fsencode(repository.place)).hexdigest()[:12]
        self._made = hashlib.sha256(command.encode()).hexdigest()
        self._lock = filelock.FileLock(f"{self.folder}.lock")

    def __enter__(self) -> "Worktrees":
        make_folder(self.folder)
        try:
            with written(self.folder):
                self._lock.acquire(timeout=0)
        except filelock.Timeout as error:
            raise UsageError("Another bisection of this repository is running. Wait for it, or end it.") from error
        self.remove(built=not self._keep)
        return self

    def __exit__(self, *exception: object) -> None:
        self._lock.release()

    def remove(self, built: bool = True) -> None:
        """Remove the worktrees, with ``built`` also those whose build is complete."""
        places = [each for each in self.folder.iterdir() if each.is_dir()]
        gone = [each for each in places if built or not self._is_built(each)]
        for each in gone:
            self._mark(each).unlink(missing_ok=True)
        self._repository.remove_worktrees(gone)
        if built:
            for each in (*self.folder.glob("*.log"), *self.folder.glob("*.built")):
                each.unlink(missing_ok=True)

    def _mark(self, place: Path) -> Path:
        return place.with_name(f"{place.name}.built")

    def _is_built(self, place: Path) -> bool:
        try:
            return self._mark(place).read_text(encoding="utf-8") == self._made
        except OSError:
            return False

    def built(self, commit: Commit) -> Path:
        """Return the worktree of a commit after its build; raises FrameworkEnvironmentError with the reason."""
        place = self.folder / commit.digest[:16]
        if self._is_built(place) and place.is_dir():
            return place
        self._repository.remove_worktrees([place])
        with written(self.folder):
            try:
                self._repository.add_worktree(place, commit)
                if self._command:
                    self._build(place)
                write_whole(self._mark(place), self._made)
            except BaseException:
                self._repository.remove_worktrees([place])
                raise
        return place

    def _build(self, place: Path) -> None:
        log = place.with_name(f"{place.name}.log")
        script = f"exec >{shlex.quote(str(log))} 2>&1\n{self._command}"
        variables = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        with Path(os.devnull).open("rb") as line:
            # The supervisor of launches: with the command, and with this process, all that it started ends.
            build = subprocess.Popen(
                [
                    sys.executable,
                    "-I",
                    "-S",
                    str(_SUPERVISOR),
                    str(os.getpid()),
                    str(line.fileno()),
                    "sh",
                    "-c",
                    script,
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd=place,
                pass_fds=(line.fileno(),),
                start_new_session=True,
            )
        try:
            assert build.stdin is not None
            with build.stdin:
                build.stdin.write(json.dumps(variables).encode())
            code = build.wait(self._limit)
        except subprocess.TimeoutExpired as error:
            raise FrameworkEnvironmentError(
                f"its build took more than {self._limit:g} s and was ended; its output is in {log}"
            ) from error
        finally:
            _end(build)
        if code != 0:
            lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
            last = in_one_line(next((line for line in reversed(lines) if line.strip()), ""))[:_LAST_WORDS]
            said = f" ({last})" if last else ""
            raise FrameworkEnvironmentError(f"its build failed with exit code {code}{said}; its output is in {log}")


def _end(build: "subprocess.Popen[bytes]") -> None:
    """End a build that still runs, with all that it started."""
    if build.poll() is None:
        with contextlib.suppress(psutil.Error):
            for process in reversed(psutil.Process(build.pid).children(recursive=True)):
                with contextlib.suppress(psutil.Error):
                    process.kill()
        build.kill()
        build.wait()
