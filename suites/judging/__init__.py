"""What a launch's answer is worth: held against the reference, the clock, the CPU time and what machines can do."""
