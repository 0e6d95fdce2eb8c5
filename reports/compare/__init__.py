"""Report: a candidate against a baseline."""
