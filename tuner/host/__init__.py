"""The machine, and what it allows this process to use."""
