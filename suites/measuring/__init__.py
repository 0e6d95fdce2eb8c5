"""Measuring a plan: launches, attempts, records, pairs."""
