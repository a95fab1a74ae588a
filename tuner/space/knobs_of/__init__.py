"""The knobs, declared once each: one file for those of a launch, one for each library."""
