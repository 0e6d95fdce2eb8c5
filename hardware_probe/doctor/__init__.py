"""What on this machine harms measurement, and how to mend it."""
