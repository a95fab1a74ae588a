"""What is stored and exchanged: configurations, launches, results, messages and the store."""
