"""Report: beside a published table."""
