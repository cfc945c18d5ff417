"""The top-level folder `platform` doesn't hide Python's standard module of that name."""

import os
import platform
import subprocess
import sys
import sysconfig


def test_platform_is_the_standard_module():
    assert os.path.dirname(os.path.realpath(platform.__file__)) == os.path.realpath(sysconfig.get_path("stdlib"))
    assert platform.python_version_tuple()[:2] == ("3", "11")


def test_platform_is_the_standard_module_in_a_child_process():
    script = "import platform; print(platform.__file__)"
    output = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert os.path.realpath(output.stdout.strip()) == os.path.realpath(platform.__file__)


def test_platform_is_the_standard_module_with_the_repository_root_on_the_path():
    # The root of the runfiles is on PYTHONPATH, and the folder is there: it must lose all the same.
    assert os.path.isdir("platform")
    assert "" not in sys.path
