"""tune-framework: find, prove and ship the fastest runtime settings of a model on a host."""

__version__ = "0.1.0"
