"""What the examples that load a model have in common: the model's folder, and errors in one line."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from absl import flags

from serving import default_model, preflight
from serving.supervisor import shows_tracebacks
from serving.tracebacks import UserError, explain

_MODEL = flags.DEFINE_string("model", None, "folder of a Hugging Face model (default: the embedded one)")


def run(name: str, argv: list[str], work: Callable[[str], None]) -> int:
    """Calls ``work`` with the model's folder; returns the exit status, and prints what went wrong as ``name: error: ...``."""
    os.chdir(os.environ.get("BUILD_WORKING_DIRECTORY", "."))  # `bazel run` starts programs elsewhere
    # Before vLLM is imported: the engine in this process, and no news but errors.
    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    if len(argv) > 1:
        print(f"{name}: error: unexpected argument {argv[1]!r}; a prompt is given by --prompt", file=sys.stderr)
        return 2
    try:
        preflight.check_python()
        folder = _MODEL.value or default_model.folder()
        if folder is None:
            raise preflight.PreflightError("there is no embedded model outside of Bazel: give one with --model")
        preflight.check_files(preflight.Request(str(folder)))  # what needs no vLLM, whose import takes seconds
        work(str(folder))
    except UserError as error:
        print(f"{name}: error: {error}", file=sys.stderr)
        return 2
    except Exception as error:
        if shows_tracebacks():
            raise
        print(f"{name}: error: {explain(error)} (JUMAR_TRACEBACK=1 shows where)", file=sys.stderr)
        return 1
    return 0
