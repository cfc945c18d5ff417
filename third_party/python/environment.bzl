"""python_environment: the locked packages, installed by pip into a virtual environment.

Slow to fetch (one to two minutes, 1.6 GB), and fetched again whenever this file, a lock or JUMAR_PYTHON changes.
So what BUILD files see of it is in packages.bzl, which may be edited without installing everything again.

Packages come from wherever this machine's pip takes them, and only with the hashes in the lock. Without
network: PIP_NO_INDEX=1 PIP_FIND_LINKS=/folder/with/the/wheels.
"""

# Where the PyTorch project publishes its CPU builds, for machines whose pip configuration doesn't have them.
_TORCH_CPU_INDEX = "https://download.pytorch.org/whl/cpu"

_ABOUT = """
import json, os, platform, sys, sysconfig
print(json.dumps({
    "python": os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable),
    "minor": "%d.%d" % sys.version_info[:2],
    "version": platform.python_version(),
    "implementation": platform.python_implementation(),
    "include": sysconfig.get_path("include"),
}))
"""

def _execute(ctx, args, **kwargs):
    return ctx.execute([str(arg) for arg in args], quiet = True, **kwargs)

def _run(ctx, args, what, **kwargs):
    result = _execute(ctx, args, **kwargs)
    if result.return_code:
        fail("@%s: %s failed (exit %d)\n%s\n%s" % (ctx.name, what, result.return_code, result.stdout[-2000:], result.stderr[-4000:]))
    return result.stdout

def _base_python(ctx):
    """The first CPython of the wanted version among JUMAR_PYTHON and what PATH and /usr/bin have."""
    want = ctx.attr.python_version
    chosen = ctx.os.environ.get("JUMAR_PYTHON", "")
    found = []
    for name in [chosen] if chosen else ["python" + want, "/usr/bin/python" + want, "python3"]:
        path = name if name.startswith("/") else ctx.which(name)
        if not path:
            found.append("%s is not there" % name)
            continue
        result = _execute(ctx, [path, "-I", "-c", _ABOUT])
        if result.return_code:
            found.append("%s fails" % path)
            continue
        about = json.decode(result.stdout)
        if about["minor"] == want and about["implementation"] == "CPython":
            return about
        found.append("%s is %s %s" % (path, about["implementation"], about["version"]))
    fail("CPython %s is needed (%s). Install it (Debian 12: apt-get install python%s) or name one in JUMAR_PYTHON." % (want, ", ".join(found), want))

def _debian(ctx, package):
    """Unpacks a Debian package, without root. Returns its folder, or None where that can't be done."""
    folder = ctx.path("debian/" + package)
    result = _execute(ctx, [ctx.path(ctx.attr._apt), ctx.path("apt"), "unpack", folder, package], timeout = 300)
    ctx.delete("apt")
    return None if result.return_code else folder

def _pip(ctx, base, venv_python):
    """The command line of a pip that installs into the virtual environment: no pip is in there yet."""
    version = _execute(ctx, [base["python"], "-I", "-c", "import pip; print(pip.__version__)"])
    if version.return_code == 0 and [int(n) for n in version.stdout.split(".")[:2]] >= [22, 3]:
        return [base["python"], "-I", "-m", "pip", "--python", venv_python]
    if _execute(ctx, [venv_python, "-I", "-m", "ensurepip"]).return_code == 0:
        return [venv_python, "-I", "-m", "pip"]
    folder = _debian(ctx, "python3-pip-whl")
    wheels = ctx.path("%s/usr/share/python-wheels" % folder).readdir() if folder else []
    wheels = [wheel for wheel in wheels if wheel.basename.startswith("pip-")]
    if not wheels:
        fail("%s has neither pip (22.3 or newer) nor ensurepip. Install one (Debian: apt-get install python%s-venv)." % (base["python"], base["minor"]))
    return [venv_python, str(wheels[0]) + "/pip"]

def _install(ctx, pip, options, what, timeout = 3000):
    """Runs pip install; asks the PyTorch project's own index if a CPU build of torch is nowhere else."""
    args = pip + ["install", "--disable-pip-version-check", "--no-input", "--quiet", "--no-compile", "--no-deps", "--require-hashes"] + options
    environment = dict(ctx.attr.build_environment)

    # torch_npu can't be loaded here: there is no CANN, real or ours, in this environment.
    environment["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
    result = _execute(ctx, args, environment = environment, timeout = timeout)
    if result.return_code and "No matching distribution found for torch==" in result.stderr:
        args += ["--extra-index-url", _TORCH_CPU_INDEX]
        result = _execute(ctx, args, environment = environment, timeout = timeout)
    if result.return_code:
        fail("@%s: installing %s failed (exit %d)\n%s\n%s" % (ctx.name, what, result.return_code, result.stdout[-2000:], result.stderr[-4000:]))

def _python_headers(ctx, base):
    """The folder of Python.h and the one that <arch/pythonX.Y/pyconfig.h> is relative to, or why there are none."""
    if ctx.path(base["include"] + "/Python.h").exists:
        return {"include": base["include"], "arch_include": ""}
    folder = _debian(ctx, "libpython%s-dev" % base["minor"])
    include = str(folder) + "/usr/include" if folder else ""
    if include and ctx.path("%s/python%s/Python.h" % (include, base["minor"])).exists:
        return {"include": "%s/python%s" % (include, base["minor"]), "arch_include": include}
    return {"include": "", "arch_include": "", "include_error": "Python.h is not in %s. Install it (Debian: apt-get install python%s-dev)." % (base["include"], base["minor"])}

def _without(lock, names):
    """The lines of a lock, less the packages that are named."""
    return "".join([line + "\n" for line in lock.split("\n") if line.split("==")[0] not in names])

def _impl(ctx):
    arch = _run(ctx, ["uname", "-m"], "uname").strip()
    lock = [label for label, machine in ctx.attr.locks.items() if machine == arch]
    if not lock:
        fail("There is no lock of Python packages for %s, only for %s. Make one on this machine: python%s third_party/python/lock.py, and list it in third_party/python/repositories.bzl." % (
            arch,
            ", ".join(ctx.attr.locks.values()),
            ctx.attr.python_version,
        ))
    lock = ctx.path(lock[0])
    wheels = _without(ctx.read(lock), ctx.attr.leave_out)
    for extra in ctx.attr.more_locks:
        wheels += ctx.read(extra)
    sources = ctx.read(ctx.attr.source_lock) if ctx.attr.source_lock else ""
    base = _base_python(ctx)

    # The folder's name is in every py_binary's launcher, so that another lock or another interpreter
    # invalidates what Python actions and tests left in Bazel's cache.
    digest = _run(ctx, [
        base["python"],
        "-I",
        "-c",
        "import hashlib, sys; print(hashlib.sha256(' '.join(sys.argv[1:]).encode()).hexdigest()[:12])",
        wheels,
        sources,
        base["python"],
        base["version"],
    ], "hashing the lock").strip()
    venv = ctx.path("venv-" + digest)
    python = str(venv) + "/bin/python3"
    ctx.report_progress("making a virtual environment of %s %s" % (base["python"], base["version"]))
    _run(ctx, [base["python"], "-I", "-m", "venv", "--without-pip", venv], "python -m venv")
    pip = _pip(ctx, base, python)

    # torch by itself: if this machine's pip can't find it, that shows before anything else is downloaded.
    torch = [line for line in wheels.split("\n") if line.startswith("torch==")]
    if torch:
        ctx.file("torch.lock", "\n".join(torch))
        ctx.report_progress("installing torch")
        _install(ctx, pip, ["--only-binary=:all:", "--requirement", ctx.path("torch.lock")], "torch")
    ctx.file("wheels.lock", wheels)
    ctx.report_progress("installing the locked packages")
    _install(ctx, pip, ["--only-binary=:all:", "--requirement", ctx.path("wheels.lock")], "the locked packages")
    if sources:
        ctx.file("sources.lock", sources)
        names = ", ".join([line.split("==")[0] for line in sources.split("\n") if "==" in line])
        ctx.report_progress("building %s from source%s" % (names, ctx.attr.source_takes))

        # A build runs programs of the environment, such as cmake.
        _install(ctx, [python, "-I", "-m", "pip"], ["--no-binary=:all:", "--no-build-isolation", "--requirement", ctx.path("sources.lock")], names, timeout = 10000)

    # Tests see the environment read-only, and would compile torch's 2,000 modules again each time.
    # (Some packages ship files that don't compile: no matter.)
    ctx.report_progress("compiling the installed packages")
    _execute(ctx, [python, "-I", "-m", "compileall", "-q", "-j", "0", str(venv) + "/lib"], timeout = 1800)

    # A package's own BUILD files would make Bazel packages of its folders and cut globs short.
    _run(ctx, ["find", venv, "(", "-name", "BUILD", "-o", "-name", "BUILD.bazel", "-o", "-name", "WORKSPACE", ")", "-type", "f", "-delete"], "find")

    # -P: the folder of a script (its real one, in the source tree) isn't put on sys.path; -s: nor are the
    # user's own packages. Not -I: PYTHONPATH is how a target's deps reach it and its child processes.
    ctx.file("launcher-" + digest, "#!/bin/sh\nexec '%s' -P -s \"$@\"\n" % python, executable = True)
    ctx.file("packages.lock", wheels + sources)
    ctx.file("env.json", json.encode(dict(
        _python_headers(ctx, base),
        launcher = str(ctx.path("launcher-" + digest)),
        lock = str(ctx.path("packages.lock")),
        python = python,
        site = "%s/lib/python%s/site-packages" % (venv, base["minor"]),
        version = base["version"],
    )))
    ctx.file("BUILD.bazel", 'exports_files(["env.json"])\n')
    ctx.file("WORKSPACE", "workspace(name = %r)\n" % ctx.name)

python_environment = repository_rule(
    implementation = _impl,
    attrs = {
        "build_environment": attr.string_dict(doc = "variables for the builds of source_lock"),
        "leave_out": attr.string_list(doc = "packages of the lock that this environment doesn't get"),
        "locks": attr.label_keyed_string_dict(mandatory = True, doc = "lock -> the machine (uname -m) that it is for"),
        "more_locks": attr.label_list(doc = "more wheels"),
        "python_version": attr.string(mandatory = True),
        "source_lock": attr.label(doc = "source distributions, to be built in the environment that the wheels make"),
        "source_takes": attr.string(doc = "for the message on the console: how long that takes, if it is long"),
        "_apt": attr.label(default = "//third_party/debian:apt.sh"),
    },
    environ = ["JUMAR_PYTHON"],
)
