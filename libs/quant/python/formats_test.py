"""The command prints tables and writes the picture; errors say what to do."""

import pathlib
import xml.etree.ElementTree

import formats
import jumar_quant
import pytest


README = pathlib.Path("libs/quant/README.md").read_text(encoding="utf-8")


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.setenv("BUILD_WORKING_DIRECTORY", str(tmp_path))
    return tmp_path


def test_overview_and_picture(here, capsys):
    assert formats.main([]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in jumar_quant.FORMATS) and "e4m3        8          448   0.00195312     253" in out
    root = xml.etree.ElementTree.parse(here / "formats.svg").getroot()
    assert len([e for e in root.iter() if e.get("stroke") == "#1565c0"]) == len(jumar_quant.FORMATS)


@pytest.mark.parametrize("name", jumar_quant.FORMATS)
def test_tables(name, capsys):
    assert formats.main([name]) == 0
    assert len(capsys.readouterr().out.splitlines()) == (32 if jumar_quant.FORMATS[name].bits == 8 else 2)


def test_quantizes_by_every_rule(capsys):
    assert formats.main(["e4m3", "--quantize", "300", "0", "-7"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + len(jumar_quant.RULES)
    ocp = next(line for line in lines if line.startswith("ocp_mx"))
    assert ocp == "ocp_mx                          1  288 (79)  0 (00)  -7 (CE)   scale = 2^0"


def test_errors_say_what_to_do(capsys):
    assert formats.main(["--quantize", "1"]) == 2
    assert "needs a format" in capsys.readouterr().err
    assert formats.main(["--svg", "/nowhere/x.svg"]) == 2
    assert "give another file with --svg" in capsys.readouterr().err


@pytest.mark.parametrize("rule", jumar_quant.RULES.values(), ids=lambda rule: rule.name)
def test_the_readme_has_every_rule(rule):
    row = f"| `{rule.name}` | {rule.formula} | {rule.clamps} | {rule.used_by} |"
    assert row.replace("|x|", "\\|x\\|") in README
