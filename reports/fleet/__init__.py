"""Node against node: the machines of a fleet that are of one kind."""
