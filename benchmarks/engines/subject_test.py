"""One whole engine process that is neither vLLM nor llama.cpp."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks.engines import subject

ECHO = """
import json, os, sys
answers = os.fdopen(int(sys.argv[1]), "w", buffering=1)
print("noise on standard output")
answers.write(json.dumps({"ready": 1.0, "settings": json.loads(sys.argv[2]), "variable": os.environ["VARIABLE"]}) + "\\n")
for line in sys.stdin:
    if "crash" in line:
        sys.exit("it broke")
    answers.write(line)
"""


def test_a_subject_answers_and_its_end_is_told(tmp_path: Path) -> None:
    engine = tmp_path / "engine.py"
    engine.write_text(ECHO)
    with subject.Subject("echo", [sys.executable], {"VARIABLE": "here"}, {"model": "m"}, tmp_path / "log", engine) as one:
        assert one.about == {"ready": 1.0, "settings": {"model": "m"}, "variable": "here"}
        assert one.ask(requests=2) == {"requests": 2}
        assert one.peak_bytes() > 1 << 20
        with pytest.raises(subject.SubjectError, match="echo ended with status 1(.|\n)*it broke"):
            one.ask(text="crash")
