"""Environments: a framework's interpreter with its locked requirements."""
