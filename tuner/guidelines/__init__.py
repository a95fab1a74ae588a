"""What many studies have in common: the effects of settings, and the models they hold for."""
