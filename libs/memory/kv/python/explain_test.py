"""The picture draws every byte of a page to scale, and the command says what it drew."""

import re
import xml.etree.ElementTree

import explain
import jumar_kv
import page_picture
import pytest


def boxes(svg):
    """(x, width, title) of the drawn boxes, scaled to [0, 1]."""
    root = xml.etree.ElementTree.fromstring(svg)
    ns = "{http://www.w3.org/2000/svg}"
    found = []
    for rect in root.iter(ns + "rect"):
        title = rect.find(ns + "title")
        if title is not None:
            x, width = float(rect.get("x")) - page_picture.LEFT, float(rect.get("width"))
            found.append((x / page_picture.WIDTH, width / page_picture.WIDTH, title.text))
    return found


@pytest.mark.parametrize("name", explain.MAKERS)
def test_every_layout_is_printed_and_drawn(name, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("BUILD_WORKING_DIRECTORY", str(tmp_path))
    assert explain.main([name, "--block-size", "32"]) == 0
    out = capsys.readouterr().out
    assert "32 tokens per block" in out and "picture: page.svg" in out
    drawn = boxes((tmp_path / "page.svg").read_text())
    assert drawn and all(-1e-6 <= x and x + width <= 1.002 for x, width, _ in drawn)


def test_a_row_is_to_scale():
    drawn = {title: (x, width) for x, width, title in boxes(page_picture.picture(jumar_kv.packed640(128)))}
    for title, first, size in (("rope: 128 (bf16)", 0, 128), ("values: 448 (e4m3)", 128, 448), ("scales: 7 (e8m0)", 576, 7)):
        assert drawn[title] == pytest.approx((first / 640, size / 640), abs=1e-4)


def test_a_page_shows_each_row():
    drawn = {title: (x, width) for x, width, title in boxes(page_picture.picture(jumar_kv.split584(64)))}
    page = jumar_kv.split584(64).block_bytes
    assert drawn["rope of token 3: 128 bytes from 2176"] == pytest.approx((2176 / page, 128 / page), abs=1e-4)
    assert drawn["scales: 512 bytes from 36864"] == pytest.approx((36864 / page, 512 / page), abs=1e-4)
    assert "300 rows of rope | values | scales" in {title for _, _, title in boxes(page_picture.picture(jumar_kv.packed640(300)))}


def test_sections_are_where_the_bytes_are():
    split = jumar_kv.split584(64)
    assert [(s.begin, s.end, [p.name for p in s.parts]) for s in page_picture.sections(split, 0)] == [
        (0, 64 * 576, ["values", "rope"]), (64 * 576, 64 * 584, ["scales"])]
    joint = jumar_kv.joint_kv(2, 64, 16, "head")
    assert [(s.begin, s.end) for s in page_picture.sections(joint, 0)] == [(0, 4096), (4096, 8192)]
    svg = page_picture.picture(joint)
    assert {"k[0]: 2048 bytes from 0", "v[1]: 2048 bytes from 6144"} <= {title for _, _, title in boxes(svg)}


def test_a_bad_argument_is_named(capsys, tmp_path):
    assert explain.main(["gqa", "--heads", "0", "--svg", str(tmp_path / "x.svg")]) == 2
    assert "heads = 0" in capsys.readouterr().err
    assert explain.main(["state-c4", "--page-bytes", "5", "--svg", str(tmp_path / "x.svg")]) == 2
    assert "page_bytes = 5" in capsys.readouterr().err
    assert explain.main(["gqa", "--heads", "9" * 20, "--svg", str(tmp_path / "x.svg")]) == 2
    capsys.readouterr()
    assert explain.main(["gqa", "--svg", str(tmp_path / "none" / "x.svg")]) == 2
    assert re.search(r"cannot write .*x.svg \(No such file or directory\); give another file with --svg", capsys.readouterr().err)
    with pytest.raises(SystemExit, match="0"):
        explain.main(["--help"])
    assert re.search(r"explain -- gqa --heads 8", capsys.readouterr().out)
