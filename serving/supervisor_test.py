"""The supervisor against small children that behave as an engine does at its worst."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

# A child is a Python program; `from serving import supervisor` works in it as it does here.
PARENT = "import sys; from serving import supervisor; sys.exit(supervisor.run([sys.executable, '-c', sys.argv[1]], 'test'))"
STUBBORN = "import signal, time; [signal.signal(s, signal.SIG_IGN) for s in (2, 15)]; "
# A grandchild in its own session whose parent ends at once: only adoption finds it.
ORPHAN = """
import subprocess, sys
code = 'import signal, time; signal.signal(15, signal.SIG_IGN); print("on", flush=True); time.sleep(60)'
p = subprocess.Popen([sys.executable, "-c", code], start_new_session=True, stdout=subprocess.PIPE)
p.stdout.readline()
print("pid", p.pid, flush=True)
"""


def start(code: str, **environ: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PARENT, code],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(code: str, **environ: str) -> tuple[int, str, str]:
    process = start(code, **environ)
    out, err = process.communicate(timeout=30)
    return process.returncode, out, err


def wait_for(process: subprocess.Popen[str], word: str) -> str:
    text = ""
    for line in process.stdout:
        text += line
        if word in line:
            return text
    raise AssertionError(f"{word!r} is not in {text!r}; {process.stderr.read()}")


def stop(process: subprocess.Popen[str], number: int = signal.SIGINT) -> tuple[float, str]:
    begin = time.monotonic()
    process.send_signal(number)
    _, err = process.communicate(timeout=30)
    return time.monotonic() - begin, err


def test_output_and_status_pass_through():
    code, out, err = run("import sys; print('out'); print('err', file=sys.stderr); sys.exit(0)")
    assert (code, out, err) == (0, "out\n", "err\n")


def test_a_progress_bar_is_shown_before_its_line_ends():
    process = start("import sys, time; sys.stdout.write('50%\\r60%'); sys.stdout.flush(); time.sleep(60)")
    begin = time.monotonic()
    assert os.read(process.stdout.fileno(), 4) == b"50%\r"
    assert os.read(process.stdout.fileno(), 3) == b"60%"
    assert time.monotonic() - begin < 30
    stop(process)


def test_told_error_is_the_last_line():
    code, _, err = run("from serving import supervisor; supervisor.tell(error='port 1 is in use'); raise SystemExit(2)")
    assert (code, err) == (2, "test: error: port 1 is in use\n")


FAILING = "from serving import supervisor; raise ValueError('weights are missing')"


def test_error_starts_its_own_line():
    code, _, err = run("import sys, time; sys.stderr.write('unfinished'); sys.stderr.flush(); time.sleep(1); raise ValueError('x')")
    assert (code, err) == (1, "unfinished\ntest: error: x (JUMAR_TRACEBACK=1 shows where)\n")


def test_traceback_becomes_one_line():
    code, _, err = run(FAILING, VLLM_LOGGING_LEVEL="INFO")
    assert (code, err) == (1, "test: error: weights are missing (JUMAR_TRACEBACK=1 shows where)\n")


@pytest.mark.parametrize("variables", [{"JUMAR_TRACEBACK": "1"}, {"VLLM_LOGGING_LEVEL": "DEBUG"}])
def test_traceback_when_asked_for(variables):
    code, _, err = run(FAILING, **variables)
    assert code == 1 and "Traceback (most recent call last)" in err


def test_reason_of_a_failed_engine_is_its_own():
    engine = "Traceback (most recent call last):\\n  File\\nValueError: root cause\\n"
    code, _, err = run(
        "import sys; from serving import supervisor; "
        f"print('ERROR 11-30 18:12:57 [c.py:1] failed'); sys.stderr.write('{engine}'); sys.stderr.flush(); "
        "supervisor.tell(error='See root cause above', engine_failed=True); sys.exit(1)"
    )
    assert (code, err) == (1, "test: error: root cause (JUMAR_TRACEBACK=1 shows where)\n")


def test_errors_after_ready_are_shown_in_one_line_each():
    engine = "Traceback (most recent call last):\\n  File\\nValueError: one request\\nINFO on\\n"
    code, _, err = run(
        "import sys, time; from serving import supervisor; supervisor.tell(ready=True); time.sleep(0.5); "
        f"sys.stderr.write('{engine}')"
    )
    assert (code, err) == (0, "test: error: one request\nINFO on\n")


def test_killed_child_is_explained():
    code, _, err = run("import os; os.kill(os.getpid(), 9)")
    assert code == 1 and "SIGKILL" in err and "JUMAR_HBM_BYTES" in err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_polite_child_ends_at_once(number):
    process = start("import time; print('up', flush=True); time.sleep(60)")
    wait_for(process, "up")
    seconds, err = stop(process, number)
    assert process.returncode == 0 and err.endswith("test: stopped\n") and seconds < 2


SERVE = "from serving import supervisor; supervisor.tell(ready=True); print('up', flush=True); time.sleep(60)"


@pytest.mark.parametrize(("then", "patience"), [(SERVE, 2.5), ("print('up', flush=True); time.sleep(60)", 0.5)])
def test_stubborn_child_ends_within_five_seconds(then, patience):
    process = start(STUBBORN + then)
    wait_for(process, "up")
    seconds, _ = stop(process)
    assert process.returncode == 0 and patience < seconds < 5


def test_second_signal_forces():
    process = start(STUBBORN + SERVE)
    wait_for(process, "up")
    process.send_signal(signal.SIGINT)
    time.sleep(0.3)
    seconds, _ = stop(process)
    assert seconds < 2


@pytest.mark.parametrize("end", ["raise ValueError('x')", "import time; time.sleep(60)", "import os; os._exit(0)"])
def test_no_process_is_left(end):
    process = start(ORPHAN + end)
    pid = int(re.search(r"pid (\d+)", wait_for(process, "pid"))[1])
    stop(process)
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_child_ends_with_a_killed_supervisor(tmp_path: Path):
    process = start("import os, time; print('pid', os.getpid(), 'up', flush=True); time.sleep(60)")
    pid = int(re.search(r"pid (\d+)", wait_for(process, "up"))[1])
    process.kill()
    process.communicate(timeout=10)
    deadline = time.monotonic() + 5
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline
        time.sleep(0.05)
