"""What is kept and exchanged: configurations, launches, slices, results, messages and the store."""
