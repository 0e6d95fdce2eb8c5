"""pytest-benchmark's files, read and written."""
