"""Which CANN is chosen, by what is on the machine. A temporary folder stands for /."""

import os

import pytest

from jumar_hostcann import pin, probe


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine without anything, and a home folder in it."""
    monkeypatch.setenv("HOME", str(tmp_path / "root"))
    return tmp_path


def add_devices(machine, count=1):
    (machine / "dev").mkdir(exist_ok=True)
    for index in range(count):
        (machine / "dev" / f"davinci{index}").touch()


def add_toolkit(home, version=pin.CANN_VERSION):
    home.mkdir(parents=True)
    (home / "version.cfg").write_text(f"# version: 1.0\nruntime_running_version=[{version}:{version}]\n")
    return home


def choose(machine, **environ):
    return probe.choose_backend(environ, str(machine))


def test_a_bare_machine_gets_hostcann(machine):
    choice = choose(machine)
    assert choice.is_fallback
    assert choice.home == probe.TOOLKIT
    assert choice.version == pin.CANN_VERSION
    assert choice.reason == "there is no NPU"
    choice.raise_if_unusable()


def test_a_toolkit_without_a_device_is_not_used(machine):
    home = add_toolkit(machine / "cann")
    assert choose(machine, ASCEND_HOME_PATH=str(home)).is_fallback


def test_a_device_without_a_toolkit_is_not_used_and_said(machine):
    add_devices(machine)
    choice = choose(machine)
    assert choice.is_fallback
    assert choice.reason == "there is no CANN toolkit"


def test_a_toolkit_with_a_device_is_used(machine):
    add_devices(machine, 2)
    home = add_toolkit(machine / "cann")
    choice = choose(machine, ASCEND_HOME_PATH=str(home))
    assert (choice.kind, choice.home, choice.version, choice.error) == ("cann", str(home), pin.CANN_VERSION, "")
    assert "2 NPU(s)" in choice.reason
    choice.raise_if_unusable()


def test_the_usual_folder_is_looked_at(machine):
    add_devices(machine)
    home = add_toolkit(machine / "usr/local/Ascend/ascend-toolkit/latest")
    assert choose(machine).home == str(home)


def test_another_release_is_an_error_that_names_both_and_the_mend(machine):
    add_devices(machine)
    home = add_toolkit(machine / "cann", "8.2.RC1")
    choice = choose(machine, ASCEND_HOME_PATH=str(home))
    assert not choice.is_fallback
    with pytest.raises(RuntimeError, match=rf"{home} is 8\.2\.RC1, .* for {pin.CANN_VERSION}: install CANN .*JUMAR_BACKEND=hostcann"):
        choice.raise_if_unusable()


def test_a_toolkit_without_a_version_is_an_error(machine):
    add_devices(machine)
    (machine / "cann").mkdir()
    with pytest.raises(RuntimeError, match="of an unknown release"):
        choose(machine, ASCEND_HOME_PATH=str(machine / "cann")).raise_if_unusable()


def test_the_own_tree_in_the_environment_is_no_toolkit(machine):
    add_devices(machine)
    choice = choose(machine, ASCEND_HOME_PATH=probe.TOOLKIT, ASCEND_TOOLKIT_HOME=probe.TOOLKIT)
    assert choice.is_fallback


def test_the_variable_decides(machine):
    add_devices(machine)
    home = add_toolkit(machine / "cann")
    assert choose(machine, ASCEND_HOME_PATH=str(home), JUMAR_BACKEND="hostcann").is_fallback
    assert not choose(machine, ASCEND_HOME_PATH=str(home), JUMAR_BACKEND="cann").is_fallback
    with pytest.raises(RuntimeError, match="there is no CANN toolkit .*set_env.sh of CANN"):
        choose(machine, ASCEND_HOME_PATH=probe.TOOLKIT, JUMAR_BACKEND="cann").raise_if_unusable()
    with pytest.raises(RuntimeError, match="JUMAR_BACKEND=gpu is none of auto, hostcann, cann"):
        choose(machine, JUMAR_BACKEND="gpu").raise_if_unusable()


def test_an_incomplete_tree_is_an_error(machine, monkeypatch):
    monkeypatch.setattr(probe, "TOOLKIT", str(machine / "nothing"))
    with pytest.raises(RuntimeError, match="hostcann is incomplete: .*libascendcl.so is missing"):
        choose(machine).raise_if_unusable()


@pytest.mark.parametrize(
    ("name", "text", "version"),
    [
        ("version.cfg", "toolkit_installed_version=[9.1.0:9.1.0]", "9.1.0"),
        ("compiler/version.info", "Version=8.5.0\nversion_dir=cann", "8.5.0"),
        ("runtime/version.info", "Version=9.1.0", "9.1.0"),
        ("version.info", "nothing=here", ""),
    ],
)
def test_reads_the_version_of_every_layout(tmp_path, name, text, version):
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)
    assert probe.read_version(str(tmp_path)) == version


def test_the_tree_has_what_torch_npu_reads():
    assert probe.read_version(probe.TOOLKIT) == pin.CANN_VERSION
    for name in ["lib64/libascendcl.so", "lib64/libopapi.so", "opp", "compiler", "runtime", probe.MARKER]:
        assert os.path.exists(os.path.join(probe.TOOLKIT, name)), name
