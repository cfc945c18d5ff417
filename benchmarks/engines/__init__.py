"""Engines under measurement, each in a process and a Python environment of its own."""
