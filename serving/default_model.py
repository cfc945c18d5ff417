"""The model that the build embeds, for a server or an example that isn't told another."""

from __future__ import annotations

from pathlib import Path

NAME = "SmolLM2-135M-Instruct"

# //third_party/models:smollm2, a data dependency: a folder of the runfiles.
_FOLDER = Path(__file__).parent.parent / "third_party" / "models" / "smollm2"


def folder() -> Path | None:
    """The model's folder, or ``None`` if the program was not started through Bazel."""
    return _FOLDER if (_FOLDER / "config.json").is_file() else None
