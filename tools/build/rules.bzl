"""Every rule that BUILD files use. The one place that knows Bazel's own.

    cc_library, cc_binary     C++20 with the house's warnings
    cc_test                   adds googletest and its main
    cc_fuzz_test              adds a driver that feeds LLVMFuzzerTestOneInput
    cc_benchmark              adds google-benchmark and its main, and a test that runs it for a moment
    shared_object             a shared library: its name, its soname, what it exports
    pybind_extension          a Python extension module
    py_library, py_binary     as they are
    py_test                   runs pytest on its srcs

Bazel 4 to 7 have the native rules built in. From Bazel 8 on this file would load them from
@rules_cc, @rules_python and @rules_shell instead.
"""

_COPTS = [
    "-Wall",
    "-Wextra",
    "-Wno-unused-parameter",
    "-Werror=delete-non-virtual-dtor",
    "-Werror=format",
    "-Werror=overloaded-virtual",
    "-Werror=reorder",
    "-Werror=return-type",
    "-Werror=switch",
    "-Werror=uninitialized",
    "-Werror=unused-result",
]

sh_binary = native.sh_binary
sh_library = native.sh_library
sh_test = native.sh_test
py_library = native.py_library
py_binary = native.py_binary

def cc_library(name, copts = [], **kwargs):
    native.cc_library(name = name, copts = _COPTS + copts, **kwargs)

def cc_binary(name, copts = [], **kwargs):
    native.cc_binary(name = name, copts = _COPTS + copts, **kwargs)

def cc_test(name, srcs, deps = [], copts = [], size = "small", **kwargs):
    native.cc_test(
        name = name,
        srcs = srcs,
        copts = _COPTS + copts,
        size = size,
        deps = deps + ["@com_google_googletest//:gtest_main"],
        **kwargs
    )

def cc_fuzz_test(name, srcs, deps = [], copts = [], size = "small", **kwargs):
    """Runs srcs' LLVMFuzzerTestOneInput on 20,000 inputs that follow from a seed.

    Longer, or from another seed: `./bazelw run //path:NAME -- --runs=1000000 --seed=7`.
    """
    native.cc_test(
        name = name,
        srcs = srcs,
        copts = _COPTS + copts,
        size = size,
        deps = deps + ["//tools/fuzz:driver"],
        **kwargs
    )

def cc_benchmark(name, srcs, deps = [], copts = [], size = "small", args = [], tags = [], **kwargs):
    """A google-benchmark program NAME, and a test NAME_smoke that runs each of its cases for a moment.

    Run it with `./bazelw run //path:NAME -- --benchmark_filter=...`.
    """
    deps = deps + ["@com_github_google_benchmark//:benchmark_main"]
    native.cc_binary(
        name = name,
        srcs = srcs,
        copts = _COPTS + copts,
        testonly = True,
        args = args,
        deps = deps,
        tags = tags + ["manual"],
        **kwargs
    )
    native.cc_test(
        name = name + "_smoke",
        srcs = srcs,
        copts = _COPTS + copts,
        args = args + ["--benchmark_min_time=0.001"],
        size = size,
        deps = deps,
        tags = tags,
        **kwargs
    )

def shared_object(
        name,
        srcs = [],
        deps = [],
        soname = None,
        version_script = None,
        copts = [],
        linkopts = [],
        additional_linker_inputs = [],
        **kwargs):
    """A shared library, linked from srcs and, statically, from all of deps.

    Of a cc_library dep, only the objects that something refers to are linked: set alwayslink = True on
    a library whose symbols only the outside uses.

    Args:
      name: the file's name, such as "libfoo.so".
      soname: what other libraries record to find it by. The file's name if not given.
      version_script: a linker version script: what is exported. Without it, everything is.
    """
    inputs = list(additional_linker_inputs)
    options = ["-Wl,-soname," + (soname or name), "-Wl,-z,defs"]
    if version_script:
        inputs.append(version_script)
        options.append("-Wl,--version-script,$(location %s)" % version_script)
    native.cc_binary(
        name = name,
        srcs = srcs,
        additional_linker_inputs = inputs,
        copts = _COPTS + copts,
        linkopts = options + linkopts,
        linkshared = True,
        linkstatic = True,
        deps = deps,
        **kwargs
    )

def pybind_extension(
        name,
        srcs,
        deps = [],
        copts = [],
        linkopts = [],
        data = [],
        py_deps = [],
        imports = [],
        testonly = None,
        tags = [],
        visibility = None):
    """An extension module: NAME.so, and a py_library NAME that makes it importable.

    Args:
      name: the module's name, the one in PYBIND11_MODULE(name, m).
      imports: as for py_library: folders that go on sys.path.
      py_deps: what the module itself imports.
    """
    native.cc_binary(
        name = name + ".so",
        srcs = srcs,
        copts = _COPTS + ["-fvisibility=hidden", "-fexceptions"] + copts,
        linkopts = linkopts,
        linkshared = True,
        linkstatic = True,
        deps = deps + ["@py//:pybind11_headers"],
        tags = tags,
        testonly = testonly,
        visibility = visibility,
    )
    native.py_library(
        name = name,
        data = [":%s.so" % name] + data,
        imports = imports,
        deps = py_deps,
        tags = tags,
        testonly = testonly,
        visibility = visibility,
    )

def py_test(name, srcs, deps = [], data = [], args = [], helpers = [], size = "small", full = None, tags = [], **kwargs):
    """Runs pytest on srcs.

    Args:
      srcs: the files whose tests are run.
      helpers: conftest.py files and modules that the tests import.
      args: more arguments for pytest.
      full: the size of NAME_full, a manual target that also runs the cases marked `@pytest.mark.full`, which
        take too long for every change. Without it there may be none.
    """
    main = "//tools/build:pytest_main.py"
    targets = [(name, size, tags, ["-m", "'not full'"] if full else [])]
    if full:
        targets.append((name + "_full", full, tags + ["manual"], []))
    for target, target_size, target_tags, selection in targets:
        native.py_test(
            name = target,
            srcs = srcs + helpers + [main],
            main = main,
            args = args + selection + ["$(rootpath %s)" % src for src in srcs],
            data = data + ["//tools/build:pytest.ini"],
            size = target_size,
            tags = target_tags,
            deps = deps + ["@py//:pytest"],
            python_version = "PY3",
            **kwargs
        )
