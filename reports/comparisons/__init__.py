"""Every comparison and gate of a store, with the verdicts that its launches give."""
