"""What several adapters share: numerical libraries, memory layouts, profilers."""
