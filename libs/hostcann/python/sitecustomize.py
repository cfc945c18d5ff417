import jumar_hostcann.bootstrap  # noqa: F401  Python runs this file at start; see bootstrap.py
