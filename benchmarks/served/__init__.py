"""Servers as people write them, which benchmarks/own_server.py tunes from outside."""
