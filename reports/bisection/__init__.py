"""Bisections: where a slowdown began, by noisy comparisons."""
