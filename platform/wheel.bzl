"""python_wheel: a wheel of files that are laid out by their paths below given folders."""

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
        arguments = ["--layout", layout.path, "--tag", ctx.attr.tag, "--wheel", wheel.path],
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
        "version": attr.string(mandatory = True),
        "tag": attr.string(mandatory = True, doc = "PYTHON-ABI-PLATFORM"),
        "roots": attr.string_list(mandatory = True, doc = "folders whose contents go to the wheel's top"),
        "srcs": attr.label_list(allow_files = True, mandatory = True),
        "_builder": attr.label(default = "//platform:build_wheel", executable = True, cfg = "exec"),
    },
)
