"""Refreshing a framework's locked environment: what is newer, a new lock, its parity, and the gate against the old."""
