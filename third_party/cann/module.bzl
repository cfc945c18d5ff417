"""A Starlark value as a Python module."""

def _constants_module_impl(ctx):
    out = ctx.actions.declare_file(ctx.attr.module + ".py")
    lines = ['"""%s Generated: don\'t edit."""' % ctx.attr.docstring, ""]
    for name, value in ctx.attr.constants.items():
        lines.append("%s = %s" % (name, value))
    ctx.actions.write(out, "\n".join(lines) + "\n")
    return [DefaultInfo(files = depset([out]))]

_constants_module = rule(
    implementation = _constants_module_impl,
    attrs = {
        "constants": attr.string_dict(mandatory = True),
        "docstring": attr.string(mandatory = True),
        "module": attr.string(mandatory = True),
    },
)

def constants_module(name, module, docstring, constants, **kwargs):
    """Writes MODULE.py, in which each of `constants` (name -> string, list or dict) is defined."""
    _constants_module(
        name = name,
        constants = {key: repr(value) for key, value in constants.items()},
        docstring = docstring,
        module = module,
        **kwargs
    )
