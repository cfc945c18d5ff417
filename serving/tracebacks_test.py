"""Real shapes of output: what vLLM, torch and Python print when an engine fails."""

from serving.tracebacks import MAX_MESSAGE_CHARS, TracebackFolder, describe

PLAIN = """\
Process EngineCore:
Traceback (most recent call last):
  File "/usr/lib/python3.11/multiprocessing/process.py", line 314, in _bootstrap
    self.run()
  File "core.py", line 1, in run

    raise ValueError("too little")
    ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
ValueError: too little
INFO: after
"""

LOG = "(EngineCore pid=7) ERROR 11-30 18:12:57 [core.py:1510] "
INFO = "(EngineCore pid=7) INFO 11-30 18:12:58 [core.py:1] "


def fold(text: str) -> tuple[list[str], list[str]]:
    folder = TracebackFolder()
    shown = [line for line in text.splitlines() if folder.feed(line)]
    folder.finish()
    return shown, folder.errors


def test_output_without_a_traceback_is_untouched():
    text = "a\n\n  indented\n(EngineCore pid=1) INFO 11-30 18:12:57 [a.py:1] x\nValueError: not one\n"
    assert fold(text) == (text.splitlines(), [])


def test_plain_traceback():
    assert fold(PLAIN) == (["Process EngineCore:", "INFO: after"], ["too little"])


def test_logged_traceback_ends_with_its_record():
    text = "\n".join(
        [
            LOG + "EngineCore failed to start.",
            LOG + "Traceback (most recent call last):",
            LOG + '  File "x.py", line 1, in f',
            LOG + "    f()",
            LOG + "RuntimeError: call aclnnX failed, error code is 561003",
            LOG + "[ERROR] 2026-11-30 ERR00100 PTA call acl api failed.",
            INFO + "next",
        ]
    )
    shown, errors = fold(text)
    assert shown == [LOG + "EngineCore failed to start.", INFO + "next"]
    assert errors == [
        "call aclnnX failed, error code is 561003 [ERROR] 2026-11-30 ERR00100 PTA call acl api failed."
    ]


def test_the_last_error_of_a_chain_counts():
    text = """\
Traceback (most recent call last):
  File "a.py", line 1, in f
KeyError: 'x'

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "a.py", line 2, in g
ValueError: no tensor x
"""
    assert fold(text) == ([], ["no tensor x"])


def test_interleaved_processes():
    text = "\n".join(
        [
            "[rank0]: Traceback (most recent call last):",
            LOG + "Traceback (most recent call last):",
            '[rank0]:   File "a.py", line 1, in f',
            LOG + '  File "b.py", line 1, in g',
            "[rank0]: MemoryError",
            LOG + "KeyError: 'b'",
        ]
    )
    assert fold(text) == ([], ["MemoryError", "KeyError: 'b'"])


def test_coloured_output():
    text = "\x1b[0;36m(EngineCore pid=7)\x1b[0;0m \x1b[31mERROR\x1b[0m 11-30 18:12:57 [c.py:1] "
    lines = [text + "Traceback (most recent call last):", text + "  File", text + "ValueError: red"]
    assert fold("\n".join(lines)) == ([], ["red"])


def test_interrupts_are_no_errors():
    assert fold("Traceback (most recent call last):\n  File\nKeyboardInterrupt\n") == ([], [])


def test_describe():
    assert describe("ValueError", "two\n  lines") == "two lines"
    assert describe("vllm.x.EngineDeadError", "gone") == "EngineDeadError: gone"
    assert describe("MemoryError", "") == "MemoryError"
    assert len(describe("ValueError", "x" * 5000)) <= MAX_MESSAGE_CHARS + 4
