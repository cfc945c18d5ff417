"""torch_npu is the wheel as its makers published it: every file has the hash that the wheel's RECORD gives."""

import base64
import csv
import hashlib
import importlib.metadata
import io
import pathlib


def test_every_file_has_the_hash_in_the_record():
    distribution = importlib.metadata.distribution("torch_npu")
    assert distribution.version == "2.13.0"
    checked = 0
    for name, digest, size in csv.reader(io.StringIO(distribution.read_text("RECORD"))):
        if not digest:  # RECORD itself, and byte code that pip compiled
            assert name.endswith(("RECORD", ".pyc")), name
            continue
        algorithm, _, expected = digest.partition("=")
        content = pathlib.Path(distribution.locate_file(name)).read_bytes()
        actual = base64.urlsafe_b64encode(hashlib.new(algorithm, content).digest()).rstrip(b"=").decode()
        if name.endswith(("INSTALLER", "REQUESTED", "direct_url.json")) or "/bin/" in name:
            continue  # pip's own files
        assert actual == expected, f"{name} was modified"
        assert int(size) == len(content), name
        checked += 1
    assert checked > 500


def test_no_file_was_added():
    distribution = importlib.metadata.distribution("torch_npu")
    recorded = {str(distribution.locate_file(row[0])) for row in csv.reader(io.StringIO(distribution.read_text("RECORD")))}
    package = pathlib.Path(distribution.locate_file("torch_npu"))
    added = [
        str(path)
        for path in package.rglob("*")
        if path.is_file() and path.suffix != ".pyc" and str(path) not in recorded
    ]
    assert not added
