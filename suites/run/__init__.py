"""Measuring a plan: launches, their judgement, schedules, and the runner."""
