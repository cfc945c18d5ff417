"""Stand-ins for the repositories that Bazel 4 itself would download.

Bazel 4's built-in WORKSPACE declares archives of rules_cc, rules_java and remote_coverage_tools. A C++
and Python build loads the first two while it resolves toolchains, and every test names the third in an
implicit dependency. These stand-ins forward to the rules that Bazel has built in, so nothing is
downloaded. (Bazel's own @platforms is a stand-in as well: the built-in one lacks CPUs and systems that
newer libraries select on.) `bazel coverage` would need the real tools and doesn't work.
"""

_CC_RULES = [
    "cc_binary",
    "cc_import",
    "cc_library",
    "cc_proto_library",
    "cc_test",
    "cc_toolchain",
    "cc_toolchain_suite",
    "fdo_prefetch_hints",
    "fdo_profile",
    "objc_import",
    "objc_library",
]
_JAVA_RULES = [
    "java_binary",
    "java_import",
    "java_library",
    "java_lite_proto_library",
    "java_package_configuration",
    "java_plugin",
    "java_proto_library",
    "java_runtime",
    "java_test",
    "java_toolchain",
]
_CPUS = ["aarch32", "aarch64", "arm64_32", "arm64e", "armv6-m", "armv7", "armv7e-m", "armv7k", "i386", "mips64", "ppc", "riscv32", "riscv64", "s390x", "wasm32", "wasm64", "x86_32", "x86_64"]
_SYSTEMS = ["android", "emscripten", "freebsd", "fuchsia", "haiku", "ios", "linux", "macos", "netbsd", "none", "openbsd", "qnx", "tvos", "wasi", "watchos", "windows"]

_COVERAGE = """
package(default_visibility = ["//visibility:public"])
filegroup(name = "coverage_report_generator", srcs = ["unavailable.sh"])
filegroup(name = "lcov_merger", srcs = ["unavailable.sh"])
"""

_UNAVAILABLE = """#!/bin/sh
echo >&2 "Coverage tools are left out of this workspace: see //third_party/bazel:repositories.bzl."
exit 1
"""

def _forward(rules):
    return "\n".join(["def %s(**kwargs):\n    native.%s(**kwargs)\n" % (rule, rule) for rule in rules])

def _constraints(setting, values, aliases):
    lines = [
        'package(default_visibility = ["//visibility:public"])',
        'constraint_setting(name = "%s")' % setting,
    ]
    lines += ['constraint_value(name = "%s", constraint_setting = ":%s")' % (value, setting) for value in values]
    lines += ['alias(name = "%s", actual = ":%s")' % alias for alias in aliases.items()]
    return "\n".join(lines) + "\n"

def _stand_in_impl(ctx):
    ctx.file("WORKSPACE", "workspace(name = %r)\n" % ctx.name)
    for path, content in ctx.attr.files.items():
        ctx.file(path, content, executable = path.endswith(".sh"))

_stand_in = repository_rule(
    implementation = _stand_in_impl,
    attrs = {"files": attr.string_dict(mandatory = True)},
)

def bazel_repositories():
    """Declares the stand-ins. Must come first in WORKSPACE.

    A released Bazel from 5 on reports its version and brings a newer set of its own. Debian's build
    reports no version; native.subpackages tells it from Bazel 5.
    """
    version = native.bazel_version
    if hasattr(native, "subpackages") or (version and not version.startswith("4.")):
        return
    _stand_in(
        name = "rules_cc",
        files = {"BUILD.bazel": "", "cc/BUILD.bazel": "", "cc/defs.bzl": _forward(_CC_RULES)},
    )
    _stand_in(
        name = "rules_java",
        files = {"BUILD.bazel": "", "java/BUILD.bazel": "", "java/defs.bzl": _forward(_JAVA_RULES)},
    )
    _stand_in(
        name = "remote_coverage_tools",
        files = {"BUILD.bazel": _COVERAGE, "unavailable.sh": _UNAVAILABLE},
    )
    _stand_in(
        name = "platforms",
        files = {
            "BUILD.bazel": "",
            "cpu/BUILD.bazel": _constraints("cpu", _CPUS, {"arm": "aarch32", "arm64": "aarch64"}),
            "os/BUILD.bazel": _constraints("os", _SYSTEMS, {"osx": "macos"}),
        },
    )
