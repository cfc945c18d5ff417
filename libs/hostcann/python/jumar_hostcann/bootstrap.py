"""Lets ``import torch`` find hostcann. Runs at the start of every interpreter, so it does next to nothing then.

torch imports torch_npu by itself, and torch_npu's libraries name CANN's (``libascendcl.so``, ...) without a path.
The loader takes a library of that name that is loaded already. So this installs an import hook which, when torch
is first imported, asks :mod:`jumar_hostcann.probe` which CANN to use. For hostcann it sets the variables that
torch_npu reads and loads the libraries. For the vendor's toolkit it does nothing: its ``set_env.sh`` did.

Child processes inherit this: the spawned through PYTHONPATH or the wheel's .pth file, the forked by themselves.
"""

import sys

# Before torch is loaded: what libtorch_npu.so and libtensorpipe.so name.
_RUNTIME = (
    "libascendcl.so",
    "libacl_op_compiler.so",
    "libhccl.so",
    "libhcomm.so",
    "libge_runner.so",
    "libgraph.so",
    "libacl_tdt_channel.so",
    "libmsprofiler.so",
    "libascend_hal.so",
)
# Once torch's libraries are there, which the operators use.
_OPERATORS = ("libopapi.so", "libnnopbase.so")


class _Hook:
    """A finder that finds nothing: it only sees torch coming. Removes itself when all is done."""

    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            if not load_runtime():
                _remove(self)
        elif name == "torch_npu._C":
            _remove(self)
            load_operators()
        return None


def install() -> None:
    """Installs the hook, unless torch is there already or the hook is."""
    if "torch" not in sys.modules and not any(isinstance(finder, _Hook) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Hook())


def load_runtime() -> bool:
    """Loads hostcann's runtime and points torch_npu at its tree. Returns False when another CANN is to be used."""
    import os

    from jumar_hostcann import probe

    backend = probe.choose_backend()
    if not backend.is_fallback or backend.error:
        return False  # whoever uses the backend raises backend.error
    os.environ["ASCEND_HOME_PATH"] = os.environ["ASCEND_TOOLKIT_HOME"] = backend.home
    os.environ["ASCEND_OPP_PATH"] = os.path.join(backend.home, "opp")
    # torch_npu's queue in front of the streams: hostcann's take a task in 26 ns, and of the queue's two threads one polls
    # every microsecond for as long as the process lives, which costs a tenth of a core.
    os.environ.setdefault("TASK_QUEUE_ENABLE", "0")
    _load(_RUNTIME)
    return True


def load_operators() -> None:
    """Loads hostcann's operators. torch's libraries must be loaded."""
    _load(_OPERATORS)


def _load(names) -> None:
    import ctypes
    import os

    from jumar_hostcann import probe

    for name in names:
        ctypes.CDLL(os.path.join(probe.TOOLKIT, "lib64", name), mode=ctypes.RTLD_GLOBAL)


def _remove(hook) -> None:
    if hook in sys.meta_path:
        sys.meta_path.remove(hook)


install()
