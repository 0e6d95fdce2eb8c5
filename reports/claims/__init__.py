"""Report: what papers claim, tried on their own tables and on one's own results."""
