"""The errors that dlbench raises: each is one line for a person, with the remedy.

DlbenchError                    anything that a user can put right
+-- UsageError                  a wrong value, name or option
|   +-- SuiteError              a suite file that cannot be read as one
+-- FrameworkEnvironmentError   an interpreter or environment that is missing or broken
+-- ReportError                 results cannot give what was asked for
+-- StoreError                  a store that cannot be opened, read or written
"""

from dlbench.reports.results.errors import DlbenchError, ReportError, StoreError
from dlbench.suites.errors import FrameworkEnvironmentError, SuiteError, UsageError

__all__ = [
    "DlbenchError",
    "FrameworkEnvironmentError",
    "ReportError",
    "StoreError",
    "SuiteError",
    "UsageError",
]
