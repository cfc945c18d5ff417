"""C++ libraries whose upstream tarballs come from Debian's archive, each pinned by its SHA-256.

    debian_tarballs     fetches the tarballs, all with one private `apt-get update`, without root
    debian_repository   unpacks one: built here from source, so that sanitizers reach into it

A pin names the upstream tarball, not Debian's revision of it: revisions vanish at point releases.
Bazel's own repository cache keeps what was fetched, so a second output base needs no network.
"""

def _run(ctx, args, what):
    result = ctx.execute(args, timeout = 900, quiet = True)
    if result.return_code:
        fail("@%s: %s failed (exit %d)\n%s%s" % (ctx.name, what, result.return_code, result.stdout[-2000:], result.stderr[-2000:]))

def _take(ctx, folder, sha256, name):
    """Copies folder/name to files/name if `folder`, or Bazel's repository cache, has it with that hash."""
    return ctx.download(
        url = ["file://%s/%s" % (folder, name)] if folder else [],
        output = "files/" + name,
        sha256 = sha256,
        allow_fail = True,
    ).success

def _tarballs_impl(ctx):
    script = str(ctx.path(ctx.attr._apt))
    folder = ctx.os.environ.get("JUMAR_DEBIAN_DIR", "")
    pins = {}
    for row in ctx.attr.tarballs:
        source, suite, name, sha256 = row.split(" ")
        pins[name] = (sha256, source, suite)

    missing = [name for name in pins if not _take(ctx, folder, pins[name][0], name)]
    if missing and folder:
        fail("@%s: JUMAR_DEBIAN_DIR=%s lacks these files (or has them with other contents):\n%s" % (
            ctx.name,
            folder,
            "".join(["  %s  %s\n" % (pins[name][0], name) for name in missing]),
        ))
    if missing:
        ctx.report_progress("reading the index of Debian's archive")
        suites = {pins[name][2]: None for name in missing}
        state = str(ctx.path("apt"))
        _run(ctx, [script, state, "setup", "deb-src"] + sorted(suites), "reading Debian's index (offline? JUMAR_DEBIAN_DIR may name a folder with the tarballs)")
        ctx.report_progress("downloading " + ", ".join(missing))
        ctx.file("download/.keep", "")
        _run(
            ctx,
            ["sh", "-c", 'cd "$0" && exec "$@"', str(ctx.path("download")), script, state, "run", "source", "--download-only", "--tar-only"] +
            ["%s/%s" % (pins[name][1], pins[name][2]) for name in missing],
            "downloading " + ", ".join(missing),
        )
        for name in missing:
            if not _take(ctx, str(ctx.path("download")), pins[name][0], name):
                fail(("@%s: Debian's archive has no %s with sha256 %s any more. Get that release from its project " +
                      "into a folder and set JUMAR_DEBIAN_DIR to it, or update the pin in //third_party/debian:repositories.bzl.") %
                     (ctx.name, name, pins[name][0]))
        ctx.delete("apt")
        ctx.delete("download")
    ctx.file("BUILD.bazel", 'exports_files(glob(["files/*"]), visibility = ["//visibility:public"])\n')

debian_tarballs = repository_rule(
    implementation = _tarballs_impl,
    attrs = {
        "tarballs": attr.string_list(mandatory = True, doc = "rows of: source-package suite file sha256"),
        "_apt": attr.label(default = "//third_party/debian:apt.sh"),
    },
    environ = ["JUMAR_DEBIAN_DIR"],
)

def _repository_impl(ctx):
    ctx.extract(ctx.attr.tarball, stripPrefix = ctx.attr.strip_prefix)
    if ctx.attr.build_file:
        ctx.delete("BUILD")
        ctx.delete("BUILD.bazel")
        ctx.symlink(ctx.attr.build_file, "BUILD.bazel")

debian_repository = repository_rule(
    implementation = _repository_impl,
    attrs = {
        "tarball": attr.label(mandatory = True),
        "strip_prefix": attr.string(mandatory = True),
        "build_file": attr.label(doc = "replaces the tarball's own top-level BUILD file"),
    },
)
