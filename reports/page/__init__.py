"""The report page: one HTML file with every number, its evidence and the command to repeat it."""
