"""python_wheel: a wheel of files that are laid out by their paths below given folders.

    python_wheel(
        name = "wheel",
        srcs = ["jumar_foo.pyi", ":jumar_foo.so"],
        distribution = "jumar_foo",
        metadata = {"Summary": "What it is", "Requires-Python": ">=3.11,<3.12"},
        roots = ["libs/foo/python"],
        tag = EXTENSION_TAG,
        version = VERSION,
    )

Files of a folder DISTRIBUTION-VERSION.dist-info among srcs are taken as they are; a METADATA that isn't there is written.
"""

# Of a wheel with an extension module, which is for one Python and one architecture.
EXTENSION_TAG = select({
    "@platforms//cpu:aarch64": "cp311-cp311-linux_aarch64",
    "@platforms//cpu:x86_64": "cp311-cp311-linux_x86_64",
})

def _archive_path(file, roots):
    for root in roots:
        if file.short_path.startswith(root + "/"):
            return file.short_path[len(root) + 1:]
    fail("%s is below none of %s" % (file.short_path, roots))

def _impl(ctx):
    wheel = ctx.actions.declare_file("{}-{}-{}.whl".format(ctx.attr.distribution, ctx.attr.version, ctx.attr.tag))
    layout = ctx.actions.declare_file(ctx.label.name + ".layout")
    ctx.actions.write(layout, "".join(["%s\t%s\n" % (_archive_path(f, ctx.attr.roots), f.path) for f in ctx.files.srcs]))
    ctx.actions.run(
        executable = ctx.executable._builder,
        arguments = [
            "--layout",
            layout.path,
            "--name",
            ctx.attr.distribution,
            "--version",
            ctx.attr.version,
            "--tag",
            ctx.attr.tag,
            "--wheel",
            wheel.path,
        ] + ["--metadata=%s: %s" % field for field in ctx.attr.metadata.items()],
        inputs = ctx.files.srcs + [layout],
        outputs = [wheel],
        mnemonic = "Wheel",
        progress_message = "Building %s" % wheel.basename,
    )
    return [DefaultInfo(files = depset([wheel]), runfiles = ctx.runfiles([wheel]))]

python_wheel = rule(
    implementation = _impl,
    attrs = {
        "distribution": attr.string(mandatory = True),
        "metadata": attr.string_dict(doc = "more fields of METADATA, if srcs don't bring that file"),
        "version": attr.string(mandatory = True),
        "tag": attr.string(mandatory = True, doc = "PYTHON-ABI-PLATFORM"),
        "roots": attr.string_list(mandatory = True, doc = "folders whose contents go to the wheel's top"),
        "srcs": attr.label_list(allow_files = True, mandatory = True),
        "_builder": attr.label(default = "//tools/build:build_wheel", executable = True, cfg = "exec"),
    },
)
