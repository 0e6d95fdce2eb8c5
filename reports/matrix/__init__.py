"""Report: the matrix, seconds per mini-batch."""
