"""What a study found: the result, computed from what was stored."""
