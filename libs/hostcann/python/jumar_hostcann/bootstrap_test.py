"""`import torch` in a fresh interpreter finds hostcann, and what goes wrong is not hidden."""

import multiprocessing
import os
import subprocess
import sys
import time

import pytest

from jumar_hostcann import probe


def run(code, **environ):
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("ASCEND_", "JUMAR_", "TASK_QUEUE_"))}
    return subprocess.run(
        [sys.executable, "-c", code], env=clean | environ, capture_output=True, text=True, timeout=120, check=False
    )


def test_import_torch_brings_the_device():
    result = run("import torch; print(torch.npu.is_available(), torch.npu.device_count(), torch.npu.get_device_name(0))")
    assert result.stdout.split() == ["True", "1", "Ascend910B2"], result.stderr


def test_import_torch_npu_first_works_too():
    result = run("import torch_npu, torch; print(torch.empty(1, device='npu').device)", TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert result.stdout.split() == ["npu:0"], result.stderr


def test_the_operator_library_is_found():
    code = "import glob, torch; x = torch.ones(3, device='npu'); print((x + x).sum().item()); "
    code += "print(*[open(path).read().strip() for path in glob.glob('/proc/self/task/*/comm')])"
    result = run(code)
    value, *threads = result.stdout.split()
    assert value == "6.0", result.stderr
    # Nor is there a thread of torch_npu's that polls.
    assert "jumar-s0" in threads and "release_thread" not in threads


def test_the_variables_name_the_tree_once_torch_is_imported():
    code = "import os; before = os.environ.get('ASCEND_HOME_PATH'); import torch; print(before, os.environ['ASCEND_HOME_PATH'])"
    assert run(code).stdout.split() == ["None", probe.TOOLKIT]


def test_who_wants_torch_npus_queue_keeps_it():
    result = run("import os, torch; print(os.environ['TASK_QUEUE_ENABLE'])", TASK_QUEUE_ENABLE="1")
    assert result.stdout.split() == ["1"], result.stderr


def test_the_hook_leaves_when_it_is_done():
    result = run("import sys, torch; print([f for f in sys.meta_path if 'jumar' in type(f).__module__])")
    assert result.stdout.strip() == "[]", result.stderr


def test_settings_reach_the_device():
    code = "import torch; print(torch.npu.device_count(), torch.npu.get_device_name(1), torch.npu.mem_get_info(1)[1])"
    result = run(code, JUMAR_DEVICES="2", JUMAR_SOC="Ascend910B3", JUMAR_HBM_BYTES="1GiB")
    assert result.stdout.split() == ["2", "Ascend910B3", str(1 << 30)], result.stderr


def test_a_wrong_setting_is_told():
    result = run("import torch; torch.empty(1, device='npu')", JUMAR_SOC="Ascend1")
    assert result.returncode != 0
    assert "JUMAR_SOC=Ascend1: " in result.stderr and "usable are Ascend910B2" in result.stderr


def test_an_import_error_is_not_hidden():
    # Another CANN is wanted, so hostcann stays away, and torch_npu doesn't find its libraries.
    result = run("import torch_npu", JUMAR_BACKEND="cann", LD_LIBRARY_PATH="")
    assert result.returncode != 0
    assert "ImportError" in result.stderr or "RuntimeError" in result.stderr
    assert "lib" in result.stderr


def test_the_start_of_an_interpreter_stays_quick():
    code = (
        "import sys, time; sys.modules.pop('jumar_hostcann.bootstrap', None); sys.modules.pop('jumar_hostcann', None)\n"
        "start = time.perf_counter(); import jumar_hostcann.bootstrap; print(1000 * (time.perf_counter() - start))\n"
        "print('ctypes' in sys.modules, 'jumar_hostcann.probe' in sys.modules)"
    )
    best = min(float(run(code).stdout.split()[0]) for _ in range(5))
    assert best < 2, f"{best:.2f} ms"
    assert run(code).stdout.split()[1:] == ["False", "False"]


def test_a_spawned_child_finds_it_too():
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        assert pool.apply(_device_of_child) == "npu:0"


def _device_of_child():
    import torch

    return str(torch.empty(1, device="npu").device)


@pytest.mark.parametrize("work", ["", "torch.empty(8, device='npu').copy_(torch.ones(8).pin_memory(), non_blocking=True)"])
def test_a_process_ends_by_itself(work):
    start = time.monotonic()
    result = run(f"import torch; x = torch.empty(1 << 20, device='npu'); s = torch.npu.Stream()\n{work}")
    assert result.returncode == 0, result.stderr
    assert time.monotonic() - start < 60


def test_a_forked_child_that_leaves_the_device_alone_ends_well():
    code = (
        "import multiprocessing, torch; torch.empty(1, device='npu'); torch.npu.synchronize()\n"
        "child = multiprocessing.get_context('fork').Process(target=lambda: exit(7)); child.start(); child.join()\n"
        "print(child.exitcode)"
    )
    result = run(code)
    assert result.stdout.split() == ["7"], result.stderr
