"""The doctor sees what is there, and what is wrong."""

import json
import pathlib
import subprocess
import sys

from jumar_hostcann import probe

from tools.doctor import cann, dependencies, doctor
from tools.doctor.finding import Finding, Status


def test_this_environment_is_healthy():
    wrong = [str(finding) for finding in doctor.examine() if finding.status is Status.FAIL]
    assert not wrong


def test_json_report_has_every_finding():
    output = subprocess.run([sys.executable, "-m", "tools.doctor.doctor", "--json"], capture_output=True, text=True)
    report = json.loads(output.stdout)
    assert {"machine", "memory", "torch_npu", "cann"} <= {row["topic"] for row in report}
    assert output.returncode == any(row["status"] == "FAIL" for row in report)


def test_a_package_of_another_version_is_named(monkeypatch):
    pins = dependencies.locked()
    monkeypatch.setattr(dependencies, "locked", lambda: {**pins, "numpy": ("0.1", "0" * 64)})
    (finding,) = [finding for finding in dependencies.check() if finding.status is Status.FAIL]
    assert "instead of 0.1" in finding.text and finding.mend


def test_a_triple_that_does_not_fit_is_named(monkeypatch):
    pins = dependencies.locked()
    monkeypatch.setattr(dependencies, "locked", lambda: {**pins, "vllm": ("0.33.0", "0" * 64)})
    texts = [str(finding) for finding in dependencies.check() if finding.status is Status.FAIL and finding.topic == "vllm"]
    assert texts and "0.33.0" in texts[0]


def test_symbols_that_nobody_gives_are_found(tmp_path):
    # An empty folder is a CANN without libraries.
    findings = {finding.text.partition(":")[0]: finding for finding in cann.unresolved_symbols(tmp_path)}
    assert findings["libtorch_npu.so"].status is Status.WARN
    assert "nobody gives 83 symbols" in findings["libtorch_npu.so"].text


def test_hostcann_gives_torch_npu_every_symbol():
    libraries = pathlib.Path(probe.TOOLKIT, "lib64")
    findings = {finding.text.partition(":")[0]: finding for finding in cann.unresolved_symbols(libraries)}
    assert str(findings["libtorch_npu.so"]).endswith("all resolved")
    assert str(findings["libtensorpipe.so"]).endswith("all resolved")


def test_a_broken_check_is_a_finding(monkeypatch):
    def check():
        raise OSError("no such thing")
        yield

    monkeypatch.setattr(doctor, "CHECKS", [check])
    assert [finding.status for finding in doctor.examine()] == [Status.FAIL]


def test_a_finding_shows_its_mend():
    assert str(Finding(Status.WARN, "disk", "1 GiB free", "clean up")).endswith("1 GiB free -> clean up")
