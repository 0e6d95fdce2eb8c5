"""Fleets: one suite on many machines, one `dlbench run` a node, started by Slurm or on this
machine.
"""
