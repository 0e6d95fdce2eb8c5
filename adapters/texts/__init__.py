"""Training on a text, after all that a launch times."""
