"""The pinned wheel has all that it needs of hostcann; a gap that isn't there but planted is found."""

import json
import pathlib
import shutil
import subprocess
import sys
import sysconfig
import zipfile

import pytest
from jumar_hostcann import probe

from tools.abi_audit import abi_audit, audit, features

SITE = pathlib.Path(sysconfig.get_path("purelib"))
HOSTCANN = pathlib.Path(probe.TOOLKIT, "lib64")
PLANTED = pathlib.Path(__file__).parent / "libplanted.so"


@pytest.fixture(scope="module")
def pinned() -> audit.Report:
    return audit.audit(SITE, HOSTCANN)


@pytest.fixture
def planted(tmp_path) -> pathlib.Path:
    """An installed wheel whose one library has planted gaps."""
    package = tmp_path / "torch_npu"
    package.mkdir()
    shutil.copy(PLANTED, package / "_C.so")
    (tmp_path / "torch_npu-9.9.0.dist-info").mkdir()
    (tmp_path / "torch_npu-9.9.0.dist-info" / "METADATA").write_text("Name: torch_npu\nVersion: 9.9.0\nRequires-Dist: torch==9.9.0\n")
    return tmp_path


def library(report: audit.Report, name: str) -> audit.Library:
    return next(library for library in report.libraries if library.path.endswith(name))


def test_the_pinned_wheel_resolves(pinned):
    assert pinned.failures() == []
    torch_npu = library(pinned, "libtorch_npu.so")
    assert torch_npu.at_import and "aclrtMemcpy" in torch_npu.strong
    assert torch_npu.unresolved == () and len(torch_npu.strong) == 83
    assert library(pinned, "libnpu_profiler.so").at_import


def test_what_only_torchair_and_atb_need_is_no_failure(pinned):
    assert not library(pinned, "_torchair.so").at_import and library(pinned, "_torchair.so").unresolved
    atb = library(pinned, "libop_plugin_atb.so")
    assert not atb.at_import and atb.absent == ("libatb.so",) and len(atb.unresolved) == 12


def test_names_that_are_looked_up(pinned):
    wanted = {"aclnnAdd", "aclnnFusedInferAttentionScoreV4", "aclmdlRICaptureBegin", "HcclAllReduce", "aclCreateTensor", "aclprofInit"}
    assert wanted <= set(pinned.looked_up)
    assert "aclnnAddGetWorkspaceSize" not in pinned.looked_up  # half of an operator
    assert len([name for name in pinned.looked_up if name.startswith("aclnn")]) > 850
    assert "aclnnAdd" not in pinned.missing() and "aclnnConvolutionBackward" in pinned.missing()


def test_the_table_counts_features(pinned):
    table = pinned.by_feature()
    assert table["memory"]["imported"] == table["memory"]["imported_given"] == 17
    assert table["GE and torchair"]["imported_given"] == 0
    assert sum(row["looked_up"] for row in table.values()) == len(pinned.looked_up)
    assert sum(row["looked_up"] - row["looked_up_given"] for row in table.values()) == len(pinned.missing())


def test_a_planted_gap_is_found(planted):
    report = audit.audit(planted, HOSTCANN)
    (only,) = report.libraries
    assert only.strong == ("aclrtMalloc", "aclrtPlantedStrong") and only.weak == ("aclrtPlantedWeak",)
    assert only.unresolved == ("aclrtPlantedStrong",)
    assert report.failures() == ["torch_npu/_C.so needs aclrtPlantedStrong, which nobody gives"]
    assert report.looked_up == ("HcclAllReduce", "aclnnPlanted") and "aclnnPlanted" in report.missing()
    assert (report.version, report.torch) == ("9.9.0", "9.9.0")


def test_a_library_that_is_linked_with_and_absent_is_found(pinned, tmp_path):
    report = audit.audit(SITE, tmp_path)
    assert any("linked with libascendcl.so, which nobody has" in line for line in report.failures())


def test_a_wheel_is_read_like_its_folder(planted, tmp_path):
    wheel = tmp_path / "torch_npu-9.9.0.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path in planted.rglob("*"):
            if path.is_file() and path != wheel:
                archive.write(path, path.relative_to(planted))
    packed, unpacked = audit.audit(wheel, HOSTCANN), audit.audit(planted, HOSTCANN)
    assert (packed.libraries, packed.looked_up, packed.version) == (unpacked.libraries, unpacked.looked_up, unpacked.version)
    assert audit.audit(planted / "torch_npu", HOSTCANN).libraries == unpacked.libraries


def test_the_exit_status_and_the_json(planted, tmp_path):
    run = lambda *arguments: subprocess.run(  # noqa: E731
        [sys.executable, "-m", "tools.abi_audit.abi_audit", *arguments], capture_output=True, text=True
    )
    good = run("--json", str(tmp_path / "good.json"))
    assert good.returncode == 0 and "has all that it needs" in good.stdout, good.stderr
    document = json.loads((tmp_path / "good.json").read_text())
    assert document["failures"] == [] and "aclnnAdd" in document["given"]["libopapi.so"]
    bad = run("--wheel", str(planted), "--list")
    assert bad.returncode == 1
    assert "- aclrtPlantedStrong (strong, _C.so)" in bad.stdout and "+ aclrtMalloc (strong, _C.so)" in bad.stdout
    absent = run("--wheel", str(tmp_path / "nothing.whl"))
    assert absent.returncode == 1 and "neither a wheel nor a folder" in absent.stderr


def test_what_has_no_torch_npu_is_refused(tmp_path):
    with pytest.raises(ValueError, match="has no libraries of torch_npu"):
        audit.audit(tmp_path, HOSTCANN)


@pytest.mark.parametrize(
    ("name", "feature"),
    [
        ("aclrtMallocPhysical", "memory"),
        ("aclrtCreateStreamWithConfig", "streams and events"),
        ("aclrtSetDevice", "runtime"),
        ("aclmdlRICaptureBegin", "graphs"),
        ("HcclAllReduce", "hccl"),
        ("_ZN3atb13CreateContextEPPNS_7ContextE", "ATB"),
        ("_ZN2ge10TensorDescC1Ev", "GE and torchair"),
        ("aclnnApplyRotaryPosEmb", "aclnn: rotary embedding and norms"),
        ("aclnnMatmulBackward", "aclnn: gradients"),
        ("aclnnQuantMatmulV5", "aclnn: quantisation"),
        ("aclnnAdd", "aclnn: other"),
        ("aclCreateTensor", "operator interface"),
        ("snprintf_s", "other"),
    ],
)
def test_features(name, feature):
    assert features.feature_of(name) == feature


def test_a_report_has_no_line_that_is_too_wide(pinned):
    _, *lines = abi_audit.lines(pinned)  # the first has the wheel's path
    assert max(map(len, lines)) < 140
