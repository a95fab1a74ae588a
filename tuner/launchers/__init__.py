"""Launches: the protocol that a bench needs of them, and what stands behind it."""
