"""What on this machine harms measurement, and how to fix it."""
