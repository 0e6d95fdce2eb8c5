"""Reports on ratios: one time over another along an axis (rows, machines, nodes, releases,
settings, a paper).
"""
