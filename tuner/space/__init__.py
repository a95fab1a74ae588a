"""What may be set: knobs, profiles, their resolution on a host, and baselines."""
