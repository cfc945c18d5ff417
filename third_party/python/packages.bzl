"""python_packages: what BUILD files see of a python_environment.

    @py//:runtime_pair         the Python runtime: the environment's interpreter
    @py//:<distribution>       an empty py_library per locked distribution, to declare deps with. Its name is
                               the distribution's, with _ for - and all in lower case: @py//:torch_npu
    @py//:torch_py             the one for torch, since @py//:torch is the C++ library
    @py//:torch                cc_library: libtorch and all its headers
    @py//:torch_headers        cc_library: the headers alone
    @py//:torch_stable         cc_library: libtorch and the headers of its stable ABI, quick to compile with
    @py//:python_headers       cc_library: Python.h
    @py//:pybind11_headers     cc_library: pybind11 and Python.h
    @py//:numpy_headers        cc_library: numpy's C API and Python.h
    @py//:environment          filegroup: env.json, which says where all that is

The packages are not runfiles: Python finds them through the interpreter, so that a test that needs torch
doesn't get 16,000 links laid out for it (a minute per test in the sandbox).
"""

_HEAD = """
load("@bazel_tools//tools/python:toolchain.bzl", "py_runtime_pair")

package(default_visibility = ["//visibility:public"])

filegroup(name = "environment", srcs = ["@py_env//:env.json"])

py_runtime(
    name = "runtime",
    interpreter_path = "{launcher}",
    python_version = "PY3",
    stub_shebang = "#!{python} -IS",
)

py_runtime_pair(name = "runtime_pair", py3_runtime = ":runtime")

cc_library(
    name = "pybind11_headers",
    hdrs = glob(["include/pybind11/**/*.h"]),
    includes = ["include/pybind11"],
    deps = [":python_headers"],
)

cc_library(
    name = "numpy_headers",
    hdrs = glob(["include/numpy/**/*.h"]),
    includes = ["include/numpy"],
    deps = [":python_headers"],
)

py_library(name = "torch_py")

TORCH_LIBS = [
    "lib/torch/libc10.so",
    "lib/torch/libtorch.so",
    "lib/torch/libtorch_cpu.so",
] + glob(["lib/torch/libgomp*.so*"])

cc_library(
    name = "torch_headers",
    hdrs = glob(["include/torch/**/*.h", "include/torch/**/*.hpp"]),
    includes = ["include/torch", "include/torch/torch/csrc/api/include"],
)

cc_library(name = "torch", srcs = TORCH_LIBS, deps = [":torch_headers"])

# 50 of the 9,400 headers: 6 s and 160 MB to compile with, where ATen.h takes 25 s and 750 MB.
cc_library(
    name = "torch_stable_headers",
    hdrs = glob([
        "include/torch/torch/csrc/stable/**/*.h",
        "include/torch/torch/csrc/inductor/aoti_torch/**/*.h",
        "include/torch/torch/headeronly/**/*.h",
    ]),
    includes = ["include/torch"],
)

cc_library(name = "torch_stable", srcs = TORCH_LIBS, deps = [":torch_stable_headers"])
"""

_PYTHON_HEADERS = """
cc_library(
    name = "python_headers",
    hdrs = glob(["include/python/**/*.h", "include/arch/**/python*/pyconfig.h"]),
    includes = ["include/python", "include/arch"],
)
"""

_NO_PYTHON_HEADERS = """
genrule(
    name = "python_headers",
    outs = ["no_python_headers.h"],
    cmd = "echo >&2 '{error}'; exit 1",
)
"""

def _locked(text):
    return [line.split("==")[0] for line in text.split("\n") if "==" in line and not line.startswith("#")]

def _impl(ctx):
    env = json.decode(ctx.read(ctx.attr.env))
    build = _HEAD.format(launcher = env["launcher"], python = env["python"])
    for name in _locked(ctx.read(env["lock"])):
        if name != "torch":
            build += 'py_library(name = "%s")\n' % name.replace("-", "_").replace(".", "_")
    if env["include"]:
        ctx.symlink(env["include"], "include/python")
        if env["arch_include"]:
            ctx.symlink(env["arch_include"], "include/arch")
        else:
            ctx.file("include/arch/.keep", "")
        build += _PYTHON_HEADERS
    else:
        build += _NO_PYTHON_HEADERS.format(error = env["include_error"])
    ctx.symlink(env["site"] + "/pybind11/include", "include/pybind11")
    ctx.symlink(env["site"] + "/numpy/_core/include", "include/numpy")
    ctx.symlink(env["site"] + "/torch/include", "include/torch")
    ctx.symlink(env["site"] + "/torch/lib", "lib/torch")
    ctx.file("BUILD.bazel", build)
    ctx.file("WORKSPACE", "workspace(name = %r)\n" % ctx.name)

python_packages = repository_rule(
    implementation = _impl,
    attrs = {"env": attr.label(mandatory = True)},
)
