"""Fleets: one suite on many machines, one `dlbench run` a node, by Slurm or on this machine."""
