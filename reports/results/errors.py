"""The errors of the host side, each a full sentence for a person: the fault, its place, the remedy.

DlbenchError            exit code 1
+-- ReportError         exit code 2   a report was asked for that the results cannot give
+-- StoreError          exit code 4   the store cannot be opened, read or written
    +-- RecordError     exit code 4   a stored record is not what this version describes
"""

from typing import ClassVar


class DlbenchError(Exception):
    """An error that a user of dlbench can put right; the message names the remedy."""

    exit_code: ClassVar[int] = 1


class ReportError(DlbenchError):
    """A report was asked for that the results at hand cannot give."""

    exit_code: ClassVar[int] = 2


class StoreError(DlbenchError):
    """The store cannot be opened, read or written; nothing in it was changed."""

    exit_code: ClassVar[int] = 4


class RecordError(StoreError):
    """A stored record or run is not of the form that this version of dlbench describes."""
