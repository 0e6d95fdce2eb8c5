"""Carrying out one launch: a guest's processes, what it may see, and its answer, which is trusted in nothing."""
