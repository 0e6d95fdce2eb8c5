"""Report: software, networks and hardware behind the numbers."""
