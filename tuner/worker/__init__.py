"""What runs in the measured process; no room of the parent imports it."""
