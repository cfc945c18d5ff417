"""JUMAR_TRACE of a torch_npu program: spans nest, names, shapes and bytes are right, and the summary agrees with the trace."""

import collections
import json
import os
import re
import subprocess
import sys

import pytest

PROGRAM = """
import torch, torch_npu
first, second = torch.npu.Stream(), torch.npu.Stream()
with torch.npu.stream(first):
    x = torch.randn(64, 32, dtype=torch.float32).to("npu")
    w = torch.randn(32, 16, dtype=torch.float32).to("npu")
    y = torch.mm(x, w)
second.wait_stream(first)
with torch.npu.stream(second):
    z = y * 2
torch.npu.synchronize()
graph = torch.npu.NPUGraph()
with torch.npu.graph(graph):
    z.add_(1)
    z.mul_(2)
graph.replay()
graph.replay()
print(z.sum().item())
"""


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trace")
    environment = dict(os.environ, JUMAR_TRACE=f"{folder}/out.json", JUMAR_HBM_BYTES="256MiB")
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr
    (path,) = folder.glob("out.*.json")
    assert re.fullmatch(r"out\.\d+\.json", path.name), "the process's number is in the name"
    return json.loads(path.read_text()), path.with_suffix(".txt").read_text()


def spans(trace):
    return [event for event in trace[0] if event["ph"] == "X"]


def named(trace, name):
    return [event for event in spans(trace) if event["name"] == name]


def test_an_operator_has_shapes_dtypes_bytes_and_operations(trace):
    (mm,) = named(trace, "aclnnMm") or named(trace, "aclnnMatmul")
    assert mm["cat"] == "operator"
    assert mm["args"]["self"] == "float32[64, 32]"
    assert mm["args"]["mat2"] == "float32[32, 16]"
    assert mm["args"]["out"] == "float32[64, 16]"
    assert mm["args"]["bytes"] == 4 * (64 * 32 + 32 * 16 + 64 * 16)
    assert mm["args"]["flops"] == 2 * 64 * 32 * 16


def test_a_copy_has_its_size_and_direction(trace):
    copies = [event for event in spans(trace) if event["cat"] == "copy"]
    sizes = [(copy["args"]["size"], copy["args"]["direction"]) for copy in copies]
    assert (64 * 32 * 4, "host to device") in sizes
    assert any(direction.startswith("device to") for _, direction in sizes)


def test_a_wait_is_a_span_with_an_arrow_from_the_record(trace):
    starts = {event["id"]: event for event in trace[0] if event["ph"] == "s"}
    ends = [event for event in trace[0] if event["ph"] == "f"]
    assert ends
    for end in ends:
        assert starts[end["id"]]["ts"] <= end["ts"]
        inside = [s for s in spans(trace) if s["tid"] == end["tid"] and s["ts"] <= end["ts"] <= s["ts"] + s["dur"]]
        assert [s["name"] for s in inside] == ["event wait"] and inside[0]["cat"] == "wait"


def test_a_replay_holds_its_nodes(trace):
    replays = named(trace, "graph replay")
    assert len(replays) == 2
    for replay in replays:
        nodes = [
            s["name"]
            for s in spans(trace)
            if s["tid"] == replay["tid"] and s is not replay and s["ts"] >= replay["ts"] and s["ts"] + s["dur"] <= replay["ts"] + replay["dur"]
        ]
        assert len(nodes) == 2 and "Add" in nodes[0] and "Mul" in nodes[1], nodes


def test_the_spans_of_a_track_nest_and_are_in_order(trace):
    tracks = collections.defaultdict(list)
    for span in spans(trace):
        tracks[span["tid"]].append((span["ts"], span["ts"] + span["dur"]))
    assert len(tracks) >= 2
    for track in tracks.values():
        open_ends: list[float] = []
        for start, end in sorted(track, key=lambda span: (span[0], -span[1])):
            while open_ends and open_ends[-1] <= start + 0.0005:
                open_ends.pop()
            assert not open_ends or end <= open_ends[-1] + 0.0005
            open_ends.append(end)
    tids = {event["tid"] for event in trace[0] if event["ph"] == "M" and event["name"] == "thread_name"}
    assert tids == set(tracks), "each track has a name"


def test_the_summary_agrees_with_the_trace(trace):
    totals: dict[str, list[float]] = collections.defaultdict(lambda: [0, 0.0])
    for span in spans(trace):
        inside = sum(
            other["dur"]
            for other in spans(trace)
            if other is not span and other["tid"] == span["tid"] and "captured on stream" in other.get("args", {})
            and span["name"] == "graph replay" and span["ts"] <= other["ts"] and other["ts"] < span["ts"] + span["dur"]
        )
        totals[span["name"]][0] += 1
        totals[span["name"]][1] += span["dur"] - inside
    rows = {}
    for line in trace[1].splitlines():
        row = re.match(r"(\S.*?)\s{2,}(\d+)\s+([\d.]+)\s+([\d.]+)\s+([\d.]+)\s", line)
        if row:
            rows[row[1]] = (int(row[2]), float(row[3]))
    assert set(rows) == set(totals)
    for name, (count, microseconds) in totals.items():
        assert rows[name][0] == count
        assert rows[name][1] == pytest.approx(microseconds / 1000, abs=0.002 + 1e-6 * count), name


def test_the_summary_tells_the_machines_limits(trace):
    machine = re.search(r"measured at the start with (\d+) threads: ([\d.]+) GB/s .*, ([\d.]+) GFLOP/s", trace[1])
    assert machine and float(machine[2]) > 0.1 and float(machine[3]) > 0.1
    assert "Graphs: 2 replays of 4 nodes together" in trace[1]


def test_a_folder_that_is_not_there_is_an_error_at_the_start():
    environment = dict(os.environ, JUMAR_TRACE="/no/such/folder/out.json")
    program = "import torch, torch_npu; torch.ones(1, device='npu')"
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=250)
    assert done.returncode != 0 and "JUMAR_TRACE=/no/such/folder/out.json" in done.stderr
