"""Report: how many threads to give."""
