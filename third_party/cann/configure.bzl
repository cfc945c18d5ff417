"""@cann: the CANN toolkit that ASCEND_HOME_PATH names, checked against the pin table; else hostcann.

    @cann//:cann.json    {"kind": "hostcann" | "toolkit", "version", "home", "error"}
    @cann//:headers      cc_library: the toolkit's headers (nothing with hostcann)
    @cann//:ascendcl     cc_library: libascendcl, the toolkit's or hostcann's

A toolkit of another release isn't an error here, since most targets need none: the error is kept, and
building @cann//:ascendcl or @cann//:headers shows it. Bazel looks again when ASCEND_HOME_PATH changes; after a
change inside the toolkit, `./bazelw sync --configure` makes it.
"""

load(":versions.bzl", "CANN_RELEASES", "CANN_VERSION")

# Where a toolkit says what it is, by age of its layout.
_VERSION_FILES = ["version.cfg", "compiler/version.info", "runtime/version.info", "version.info"]

def _toolkit_version(ctx, home):
    for name in _VERSION_FILES:
        path = ctx.path(home + "/" + name)
        if path.exists:
            for line in ctx.read(path).split("\n"):
                key, _, value = line.partition("=")
                if key.strip().lower() in ("version", "runtime_running_version", "toolkit_installed_version"):
                    # [9.1.0:9.1.0] in version.cfg, 9.1.0 elsewhere.
                    return value.strip().strip("[]").split(":")[-1]
    return ""

def _find(ctx):
    home = ctx.os.environ.get("ASCEND_HOME_PATH", "")
    if not home:
        return {"kind": "hostcann", "version": CANN_VERSION, "home": "", "error": ""}
    version = _toolkit_version(ctx, home) if ctx.path(home).exists else ""
    error = ""
    if not ctx.path(home).exists:
        error = "ASCEND_HOME_PATH=%s is not there: unset it to build for hostcann, or source the set_env.sh of CANN %s" % (home, CANN_VERSION)
    elif not version:
        error = "%s has no version file, so it is no CANN toolkit: set ASCEND_HOME_PATH to that of CANN %s, or unset it" % (home, CANN_VERSION)
    elif version not in CANN_RELEASES:
        error = "%s is CANN %s, and this revision is for %s: install that, or take the revision for yours" % (home, version, " or ".join(CANN_RELEASES))
    return {"kind": "toolkit", "version": version, "home": home, "error": error}

_HOSTCANN = """
cc_library(name = "headers")

alias(name = "ascendcl", actual = "@jumar//libs/hostcann/acl:ascendcl")
"""

_TOOLKIT = """
cc_library(
    name = "headers",
    hdrs = glob(["include/**/*.h"]),
    includes = ["include"],
)

cc_library(
    name = "ascendcl",
    srcs = ["lib64/libascendcl.so"],
    deps = [":headers"],
)
"""

_ERROR = """
genrule(
    name = "no_cann",
    outs = ["no_cann.cc"],
    cmd = "echo >&2 '{error}'; exit 1",
)

cc_library(name = "headers", srcs = [":no_cann"])

cc_library(name = "ascendcl", srcs = [":no_cann"])
"""

def _impl(ctx):
    found = _find(ctx)
    build = 'package(default_visibility = ["//visibility:public"])\n\nexports_files(["cann.json"])\n'
    if found["error"]:
        build += _ERROR.format(error = found["error"])
    elif found["kind"] == "toolkit":
        ctx.symlink(found["home"] + "/include", "include")
        ctx.symlink(found["home"] + "/lib64", "lib64")
        build += _TOOLKIT
    else:
        build += _HOSTCANN
    ctx.file("cann.json", json.encode(found) + "\n")
    ctx.file("BUILD.bazel", build)
    ctx.file("WORKSPACE", "workspace(name = %r)\n" % ctx.name)

cann_configure = repository_rule(
    implementation = _impl,
    configure = True,
    environ = ["ASCEND_HOME_PATH"],
    local = True,
)
