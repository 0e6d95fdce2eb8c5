"""Report: framework against framework."""
