"""The parent's side of measuring: worker processes, launches, the pacer, scores, confirmation."""
