"""Report: who is fastest."""
