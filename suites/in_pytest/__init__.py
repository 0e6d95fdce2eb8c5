"""A suite's cells as pytest-benchmark benchmarks, and dlbench's verdict in a pytest session."""
