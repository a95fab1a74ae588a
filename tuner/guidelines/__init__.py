"""What many studies have in common: the worth of settings, and for which models it holds."""
