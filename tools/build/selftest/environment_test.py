"""The Python environment holds together: every locked package finds what it needs, in a version it accepts."""

import importlib.metadata
import os
import subprocess
import sys

from packaging.requirements import Requirement

# requirements.in says why.
LEFT_OUT = {"triton"}


def test_installed_packages_satisfy_each_other():
    unmet = []
    for distribution in importlib.metadata.distributions():
        for text in distribution.requires or []:
            requirement = Requirement(text)
            if requirement.marker and not requirement.marker.evaluate({"extra": ""}):
                continue
            if requirement.name in LEFT_OUT:
                continue
            try:
                version = importlib.metadata.version(requirement.name)
            except importlib.metadata.PackageNotFoundError:
                version = "none"
            if version == "none" or not requirement.specifier.contains(version, prereleases=True):
                unmet.append(f"{distribution.name} wants {requirement}, here is {version}")
    assert not unmet, "\n".join(unmet)


def test_interpreter_takes_packages_from_the_environment_alone():
    assert sys.flags.safe_path
    assert sys.flags.no_user_site
    assert sys.prefix != sys.base_prefix


def test_vllm_imports_without_triton():
    script = "import torch, vllm, xgrammar; from vllm.triton_utils import HAS_TRITON; print(HAS_TRITON, torch.version.cuda)"
    environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    output = subprocess.run([sys.executable, "-c", script], env=environment, check=True, capture_output=True, text=True)
    assert output.stdout.split("\n")[-2] == "False None"
