"""The code of the measured process; no package of the parent imports it."""
