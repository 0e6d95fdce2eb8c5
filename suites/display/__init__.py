"""Terminal output while something is measured."""
