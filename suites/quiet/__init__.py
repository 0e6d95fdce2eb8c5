"""Measuring only while this machine is quiet, and one measurement at a time."""
