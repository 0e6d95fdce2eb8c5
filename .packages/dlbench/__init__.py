"""A comparative benchmark suite of deep-learning frameworks in the style of DLBench (Shi et al. 2016)."""
