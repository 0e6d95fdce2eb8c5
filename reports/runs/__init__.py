"""Report: the runs of a store."""
