"""The folder of a site: its marker, what it remembers, and files that are written only where they change."""

from pathlib import Path

from pydantic import TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from dlbench.reports.site.contents import Contents

from ..environments.folders import write_whole
from ..errors import UsageError

MARKER = "site.json"
FORM = 1
"""Rises whenever a reader of the old form would misread the new one."""


@dataclass(frozen=True)
class _Kept:
    dlbench_site: int
    contents: Contents


_KEPT = TypeAdapter(_Kept)


class SiteFolder:
    """A folder that holds a site of ours and nothing else."""

    def __init__(self, path: Path) -> None:
        """Open the folder, or make it; raises UsageError where it holds anything but a site of ours."""
        self.path = path
        self.written = 0
        """Files written, since they were new or other than before."""
        try:
            self.contents = self._read()
            self.save()
        except OSError as error:
            raise self._refused(error) from error

    def _read(self) -> Contents:
        marker = self.path / MARKER
        if marker.is_file():
            try:
                kept = _KEPT.validate_json(marker.read_bytes())
            except ValidationError:
                kept = None
            if kept is None or kept.dlbench_site != FORM:
                raise UsageError(
                    f"{marker} is not of a site that this dlbench can read; name another folder with --out, or remove "
                    "this one to make the site anew."
                )
            return kept.contents
        if self.path.is_dir() and any(self.path.iterdir()):
            raise UsageError(
                f"{self.path} holds files and is no site of dlbench; name a new or an empty folder with --out."
            )
        return Contents()

    def write(self, file: str, text: str) -> None:
        """Write a file of the site whole, unless it says so already; raises UsageError."""
        path = self.path / file
        try:
            if path.is_file() and path.read_bytes() == text.encode():
                return
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, text)
        except OSError as error:
            raise self._refused(error) from error
        self.written += 1

    def has(self, file: str) -> bool:
        """Tell whether the site has this file."""
        return (self.path / file).is_file()

    def save(self) -> None:
        """Remember what the site holds; raises UsageError."""
        told = _KEPT.dump_json(_Kept(FORM, self.contents), indent=1).decode()
        before = self.written
        self.write(MARKER, told + "\n")
        self.written = before

    def _refused(self, error: OSError) -> UsageError:
        return UsageError(
            f"The site {self.path} cannot be written ({error.strerror or error}); name another folder with --out."
        )
