"""Launches: the protocol that a bench needs, and its implementations."""
