"""Commits of the user's repository, each built in a git worktree.

The user's files and index are never touched. The worktrees are in a folder of dlbench. A commit
counts as built once the file next to its worktree says so, which is written last. Worktrees are
removed when the bisection is done, and those of a killed one by the next bisection. With --resume
those that are built are reused.
"""

import contextlib
import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import filelock

from dlbench.reports.results.commits import SHORT

from ..errors import FrameworkEnvironmentError, UsageError
from . import packages
from .folders import home, make_folder, write_whole, written


def git(folder: Path, *words: str) -> str | None:
    """Return git's output; None if it fails. Raises UsageError if git is not installed."""
    # A hook of the repository would run with each worktree; variables of a hook would mean another
    # repository.
    settings = ("-c", f"core.hooksPath={os.devnull}", "-c", "log.showSignature=false")
    variables = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *settings, *words],
            capture_output=True,
            env={**variables, "LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0"},
            stdin=subprocess.DEVNULL,
        )
    except OSError as error:
        raise UsageError("A revision needs git, which is not installed. Install it.") from error
    return done.stdout.decode(errors="replace").strip() if done.returncode == 0 else None


def digest_of(folder: Path, revision: str, option: str) -> str:
    """Return the digest of a revision's commit; raises UsageError with the option's name."""
    digest = git(
        folder, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}"
    )
    if digest is None:
        raise UsageError(
            f"{option}: git finds no revision {revision!r} there. `git log --oneline` lists them."
        )
    return digest


def commits(folder: Path, earlier: str, later: str) -> dict[str, str]:
    """Return the subjects of the first-parent commits between two revisions, by digest.

    Both revisions are included. Raises UsageError.
    """
    first = digest_of(folder, earlier, "--good and --bad")
    last = digest_of(folder, later, "--good and --bad")
    if first == last:
        raise UsageError(f"--good and --bad are the same commit, {first[:SHORT]}. Give two.")
    if git(folder, "merge-base", "--is-ancestor", first, last) is None:
        if git(folder, "merge-base", "--is-ancestor", last, first) is not None:
            raise UsageError(
                f"{earlier} is later than {later}. Swap the two (with --faster, good is the later "
                "one)."
            )
        raise UsageError(
            f"{earlier} is not an ancestor of {later}. Give their common ancestor in its place: "
            f"git merge-base {earlier} {later}."
        )
    options = ("--first-parent", "--reverse", "--format=%H %P%x09%s")
    log = git(folder, "log", *options, f"{first}..{last}") or ""
    lines = [line.partition("\t") for line in log.split("\n")]
    first_parent = lines[0][0].split()[1:2]
    if first_parent != [first]:
        raise UsageError(
            f"{earlier} lies on a branch that was merged before {later}. Name a commit of the "
            "first-parent history: git log --first-parent --oneline."
        )
    subjects = {first: git(folder, "log", "-1", "--format=%s", first) or ""}
    for digests, _, subject in lines:
        digest = digests.split()[0]
        subjects[digest] = subject
    return subjects


class Worktrees:
    """Built commits of one repository; a context manager that lets no second bisection of it in."""

    def __init__(self, repository: Path, command: str, limit: float) -> None:
        """Take a folder of the repository, the build command and its time limit in seconds.

        Raises UsageError where there is no repository.
        """
        place = git(repository, "rev-parse", "--git-common-dir")
        if place is None:
            raise UsageError(
                f"--repo: {repository} is not a git repository. Give the folder of one."
            )
        self._repository = repository
        self._command = command
        self._limit = limit
        digest = hashlib.sha256(os.fsencode((repository / place).resolve())).hexdigest()
        self.folder = home() / "bisect" / digest[:12]

    @contextlib.contextmanager
    def used(self, keep: bool) -> Iterator[None]:
        """Remove the worktrees of an earlier bisection; with ``keep`` only those half-built."""
        make_folder(self.folder)
        try:
            with written(self.folder):
                lock = filelock.FileLock(f"{self.folder}.lock").acquire(timeout=0)
        except filelock.Timeout as error:
            raise UsageError(
                "Another bisection of this repository is running. Wait for it, or end it."
            ) from error
        with lock:
            self.remove(built=not keep)
            if not keep:
                for log in self.folder.glob("*.log"):  # of builds that failed
                    log.unlink(missing_ok=True)
            yield

    def remove(self, built: bool = True) -> None:
        """Remove the worktrees; without ``built`` only those whose build is not complete."""
        for tree in [path for path in self.folder.iterdir() if path.is_dir()]:
            if built or not self._is_built(tree):
                self._remove(tree)
                tree.with_suffix(".log").unlink(missing_ok=True)

    def _remove(self, tree: Path) -> None:
        tree.with_suffix(".built").unlink(missing_ok=True)
        git(self._repository, "worktree", "remove", "--force", "--force", str(tree))
        shutil.rmtree(tree, ignore_errors=True)

    def _is_built(self, tree: Path) -> bool:
        with contextlib.suppress(OSError):
            built_by = tree.with_suffix(".built").read_text(encoding="utf-8")
            return tree.is_dir() and built_by == self._command
        return False

    def built(self, digest: str) -> Path:
        """Return the worktree of a commit after its build.

        Raises FrameworkEnvironmentError with the reason.
        """
        tree = self.folder / digest[:16]
        if self._is_built(tree):
            return tree
        self._remove(tree)
        with written(self.folder):
            try:
                add = ("worktree", "add", "--force", "--detach", str(tree), digest)
                if git(self._repository, *add) is None:
                    raise FrameworkEnvironmentError(
                        f"no room for it in {tree}, or files of it are missing"
                    )
                self._build(tree)
                write_whole(tree.with_suffix(".built"), self._command)
            except BaseException:
                self._remove(tree)
                raise
        return tree

    def _build(self, tree: Path) -> None:
        log = tree.with_suffix(".log")
        log.unlink(missing_ok=True)
        # git's own way to forget the repository of a hook
        command = ["sh", "-c", f"unset $(git rev-parse --local-env-vars)\n{self._command}"]
        code, output = packages.run(command, log, directory=tree, limit=self._limit)
        if code != 0:
            raise FrameworkEnvironmentError(
                f"its build failed with exit code {code} ({packages.last_line(output)}); its "
                f"output is in {log}"
            )
