"""Report: published claims, evaluated on their own tables and on the results of a store."""
