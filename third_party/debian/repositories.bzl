"""Every C++ dependency, with its pin. To update one: CONTRIBUTING.md, "Update a pin"."""

load(":debian.bzl", "debian_repository", "debian_tarballs")

def _repository(name, **kwargs):
    """Not where the workspace has its own of that name already."""
    if not native.existing_rule(name):
        debian_repository(name = name, **kwargs)

def debian_repositories():
    debian_tarballs(
        name = "debian_tarballs",
        tarballs = [
            # source package, Debian suite that has it, tarball, sha256
            "abseil bookworm abseil_20220623.1.orig.tar.gz abfe2897f3a30edaa74bc34365afe3c2a3cd012091a97dc7e008f7016adcd5fe",
            "bazel-skylib bookworm bazel-skylib_1.0.3.orig.tar.xz b22f0f38d9a1ac565fce8a43df3d284f6b8e5e8775bda54b5cb687bed46b6ea4",
            "benchmark bookworm benchmark_1.7.1.orig.tar.gz 6430e4092653380d9dc4ccb45a1e2dc9259d581f4866dc0759713126056bc1d7",
            "googletest bookworm googletest_1.12.1.orig.tar.gz 81964fe578e9bd7c94dfdb09c8e4d6e6759e19967e397dbea48d1c10e45d0df2",
            "highway trixie highway_1.2.0.orig.tar.gz 7e0be78b8318e8bdbf6fa545d2ecb4c90f947df03f7aadc42c1967f019e63343",
        ],
    )
    _repository(
        name = "com_google_absl",
        strip_prefix = "abseil-20220623.1",
        tarball = "@debian_tarballs//:files/abseil_20220623.1.orig.tar.gz",
    )
    _repository(
        name = "com_google_googletest",
        strip_prefix = "googletest-release-1.12.1",
        tarball = "@debian_tarballs//:files/googletest_1.12.1.orig.tar.gz",
    )
    _repository(
        name = "com_github_google_benchmark",
        strip_prefix = "benchmark-1.7.1",
        tarball = "@debian_tarballs//:files/benchmark_1.7.1.orig.tar.gz",
    )
    _repository(
        name = "com_google_highway",
        build_file = Label("//third_party/debian:highway.BUILD"),
        strip_prefix = "highway-1.2.0",
        tarball = "@debian_tarballs//:files/highway_1.2.0.orig.tar.gz",
    )

    # Abseil's BUILD files load it.
    _repository(
        name = "bazel_skylib",
        strip_prefix = "bazel-skylib-1.0.3",
        tarball = "@debian_tarballs//:files/bazel-skylib_1.0.3.orig.tar.xz",
    )
