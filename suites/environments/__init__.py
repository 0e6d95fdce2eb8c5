"""The parts of building a framework's environment; ``environment`` is what the rest of the program uses."""
