"""The version of the Python distribution."""

VERSION = "0.1.0"
