"""The knobs, declared once each: one file for what a launch sets, one for each library."""
