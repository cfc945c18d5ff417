"""What another workspace calls to use Jumar's libraries. In its WORKSPACE:

    local_repository(name = "jumar", path = "/path/to/jumar")  # or http_archive, git_repository

    load("@jumar//:repositories.bzl", "jumar_repositories")

    jumar_repositories()

and then, in a BUILD file, deps = ["@jumar//libs/tiling"]. The name has to be jumar. It needs --cxxopt=-std=c++20. Dependencies that
the workspace declares before the call under the same names (@com_google_absl, @com_google_highway, ...) are used instead of ours.
examples/outside_workspace is such a workspace.
"""

load("//third_party/bazel:repositories.bzl", "bazel_repositories")
load("//third_party/debian:repositories.bzl", "debian_repositories")

def jumar_repositories():
    """C++ libraries only: for Python there are wheels (./bazelw build //libs/tiling/python:wheel)."""
    bazel_repositories()
    debian_repositories()
