"""The search space: knobs, profiles, their resolution on a host, and baselines."""
