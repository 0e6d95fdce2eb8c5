"""Messages of the commands in the words of the plugin: an option is named as pytest knows it."""

import re

_OPTION = re.compile(r"(?<![\w-])--(?!dlbench-)([a-z][a-z-]*)")


def of_suite(error: Exception) -> str:
    """Return what is wrong with a session over a suite."""
    return "dlbench: " + _OPTION.sub(r"--dlbench-\1", str(error))


def of_baseline(error: Exception) -> str:
    """Return what is wrong with a baseline, which stands where a command has its store."""
    return f"dlbench: {str(error).replace('--store', '--dlbench-baseline')}"
