"""hostcann, our CANN on a CPU, as a Python package: which CANN to use, and how torch_npu finds it.

Importing this package has no effects. See :mod:`jumar_hostcann.probe` and :mod:`jumar_hostcann.bootstrap`.
"""
