"""Report: time against mini-batch size."""
