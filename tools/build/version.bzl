"""The version of the Python distributions."""

VERSION = "0.1.0"
