"""Carry a recommendation into the user's own program."""
