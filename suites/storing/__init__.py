"""The store that a run writes to, and what waits on this machine until a server has it."""
