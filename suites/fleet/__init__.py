"""Fleets: one suite on many machines, one job for each, through the scheduler that is there."""
