"""What an operator costs beside its arithmetic: microseconds per call, eager and replayed from a graph.

    ./bazelw run //libs/hostcann/aclnn:op_overhead [-- operator...]

Tensors are of the size of one decode step of a small model, so that most of the time is overhead. "submit" is the caller's
time alone; "eager" includes the wait for the device; "replay" is the share of one operator in a graph of 200.
"""

import sys
import time

import torch
import torch_npu

HIDDEN, INTER, VOCAB = 576, 1536, 49152


def cases(dtype=torch.bfloat16):
    x = torch.randn(1, HIDDEN, dtype=dtype, device="npu")
    wide = torch.randn(1, 2 * INTER, dtype=dtype, device="npu")
    weight = torch.randn(HIDDEN, HIDDEN, dtype=dtype, device="npu")
    gain = torch.ones(HIDDEN, dtype=dtype, device="npu")
    table, token = torch.randn(VOCAB, HIDDEN, dtype=dtype, device="npu"), torch.zeros(1, dtype=torch.int64, device="npu")
    rope, position = torch.randn(2048, 64, dtype=dtype, device="npu"), torch.zeros(1, dtype=torch.int64, device="npu")
    key, cache, slot = torch.randn(1, 3, 64, dtype=dtype, device="npu"), torch.zeros(16, 128, 3, 64, dtype=dtype, device="npu"), torch.zeros(1, dtype=torch.int32, device="npu")
    out = torch.empty_like(x)
    flat = cache.view(16, 128, 192)
    blocks = torch.zeros(1, 16, dtype=torch.int32, device="npu")
    return {
        "copy": lambda: out.copy_(x),
        "add": lambda: torch.add(x, x, out=out),
        "mul by scalar": lambda: x * 2.0,
        "embedding": lambda: torch.nn.functional.embedding(token, table),
        "rms norm": lambda: torch_npu.npu_rms_norm(x, gain),
        "add rms norm": lambda: torch_npu.npu_add_rms_norm(x, x, gain),
        "swiglu": lambda: torch_npu.npu_swiglu(wide),
        "rope": lambda: torch_npu.npu_mrope(position, x, x[:, :192].contiguous(), rope, 64, mrope_section=[0, 0, 0], rotary_mode="half"),
        "cache write": lambda: torch_npu.npu_scatter_pa_kv_cache(key, key, cache, cache, slot, cache_mode="Norm"),
        "matmul": lambda: torch.matmul(x, weight.t()),
        "attention": lambda: torch_npu.npu_fused_infer_attention_score(
            x.view(1, 9, 64), flat, flat, block_table=blocks, block_size=128, num_heads=9, num_key_value_heads=3, scale=0.125, input_layout="TND",
            actual_seq_lengths=[1], actual_seq_lengths_kv=[64]),
        "argmax": lambda: x.argmax(-1),
        "gather row": lambda: x.index_select(0, token),
    }


def seconds(function, repeat):
    best = float("inf")
    for _ in range(5):
        torch.npu.synchronize()
        begin = time.perf_counter()
        for _ in range(repeat):
            function()
        middle = time.perf_counter()
        torch.npu.synchronize()
        best = min(best, (time.perf_counter() - begin) / repeat)
        submit = (middle - begin) / repeat
    return best, submit


def main(names):
    print(f"{'operator':<16}{'submit us':>12}{'eager us':>12}{'replay us':>12}")
    for name, function in cases().items():
        if names and name not in names:
            continue
        eager, submit = seconds(function, 200)
        graph = torch.npu.NPUGraph()
        with torch.npu.graph(graph):
            for _ in range(200):
                function()
        replay, _ = seconds(graph.replay, 3)
        print(f"{name:<16}{submit * 1e6:>12.1f}{eager * 1e6:>12.1f}{replay / 200 * 1e6:>12.2f}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
