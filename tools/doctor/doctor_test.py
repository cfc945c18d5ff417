"""The doctor sees what is there, and what is wrong."""

import json
import os
import pathlib
import subprocess
import sys

from jumar_hostcann import probe

from tools.doctor import cann, dependencies, doctor, settings
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


def test_the_documentation_has_every_variable_as_the_runtime_describes_it():
    page = pathlib.Path("docs", "configuration.md").read_text()
    variables = settings.describe()["variables"]
    assert len(variables) >= 6
    for variable in variables:
        assert f"| `{variable['name']}` | {variable['default']} | {variable['meaning']} |" in page


def findings_with(**variables: str) -> list[dict[str, str]]:
    output = subprocess.run([sys.executable, "-m", "tools.doctor.doctor", "--json"], capture_output=True, text=True, env={**os.environ, **variables})
    return [row for row in json.loads(output.stdout) if row["topic"] == "hostcann"]


def test_settings_are_told_with_their_source():
    rows = [row["text"] for row in findings_with(JUMAR_DEVICES="3", JUMAR_SOK="x")]
    assert any(row.startswith("JUMAR_DEVICES: 3 (environment), ") for row in rows)
    assert any(row.startswith("JUMAR_SOC: Ascend910B2 (default), ") for row in rows)
    assert "the variable JUMAR_SOK is not known and does nothing; did you mean JUMAR_SOC?" in rows


def test_a_wrong_setting_is_a_failure():
    assert {"FAIL"} == {row["status"] for row in findings_with(JUMAR_STRICT="maybe") if "is neither 0 nor 1" in row["text"]}


def test_a_broken_check_is_a_finding(monkeypatch):
    def check():
        raise OSError("no such thing")
        yield

    monkeypatch.setattr(doctor, "CHECKS", [check])
    assert [finding.status for finding in doctor.examine()] == [Status.FAIL]


def test_a_finding_shows_its_mend():
    assert str(Finding(Status.WARN, "disk", "1 GiB free", "clean up")).endswith("1 GiB free -> clean up")
