"""Report: what several workers gain."""
