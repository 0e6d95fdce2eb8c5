"""Time along a numeric axis: curves, their fits, knees and crossings, and their picture."""
