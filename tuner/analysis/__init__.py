"""What a study found: everything that is computed from what was stored."""
