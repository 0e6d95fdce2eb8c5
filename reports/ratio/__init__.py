"""Reports on ratios: one time over another along an axis.

For example rows, machines, nodes, releases, settings, or a paper.
"""
