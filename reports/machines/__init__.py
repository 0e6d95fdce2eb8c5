"""Report: machine against machine."""
