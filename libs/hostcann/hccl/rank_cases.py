"""What one rank does in the tests of torch_distributed_test.py: python rank_cases.py CASE RANK RANKS STORE."""

import datetime
import os
import signal
import sys
import time

import torch
import torch.distributed as dist

REDUCED = [torch.float32, torch.float16, torch.bfloat16, torch.int8, torch.uint8, torch.int32, torch.int64]


def values(rank: int, shape, dtype: torch.dtype) -> torch.Tensor:
    """Small integers, which every type adds and multiplies exactly: the same on every rank that asks for `rank`'s."""
    generator = torch.Generator().manual_seed(1000 + rank)
    return torch.randint(1, 3, shape, generator=generator).to(dtype)


def device(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to("npu")


def same(actual: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(actual.cpu(), expected, rtol=0, atol=0)


def reduction_cases(rank: int, ranks: int) -> None:
    ops = {
        dist.ReduceOp.SUM: lambda stack: stack.sum(0),
        dist.ReduceOp.PRODUCT: lambda stack: stack.prod(0),
        dist.ReduceOp.MAX: lambda stack: stack.max(0).values,
        dist.ReduceOp.MIN: lambda stack: stack.min(0).values,
    }
    for dtype in REDUCED:
        for shape in [(1,), (7, 5)]:
            stack = torch.stack([values(r, shape, dtype) for r in range(ranks)])
            for op, reference in ops.items():
                expected = reference(stack.to(torch.float64)).to(dtype)
                tensor = device(stack[rank])
                dist.all_reduce(tensor, op=op)
                same(tensor, expected)
                tensor = device(stack[rank])
                dist.reduce(tensor, dst=ranks - 1, op=op)
                if rank == ranks - 1:
                    same(tensor, expected)
    # One rounding at the end, in the order of the ranks, and the same bits on all ranks, whatever the length.
    for count in (1000, 300_000):
        stack = torch.stack([torch.randn(count, generator=torch.Generator().manual_seed(r)).to(torch.bfloat16) for r in range(ranks)])
        exact = stack[0].float()
        for other in stack[1:]:
            exact = exact + other.float()
        tensor = device(stack[rank])
        dist.all_reduce(tensor)
        same(tensor, exact.to(torch.bfloat16))


def gather_cases(rank: int, ranks: int) -> None:
    for dtype in (torch.float32, torch.bfloat16, torch.int64, torch.bool):
        all_values = [values(r, (3, 4), dtype) for r in range(ranks)]
        mine = device(all_values[rank])
        out = [torch.empty_like(mine) for _ in range(ranks)]
        dist.all_gather(out, mine)
        for actual, expected in zip(out, all_values):
            same(actual, expected)
        flat = torch.empty(3 * ranks, 4, dtype=dtype, device="npu")
        dist.all_gather_into_tensor(flat, mine)
        same(flat, torch.cat(all_values))
        tensor = device(all_values[rank])
        dist.broadcast(tensor, src=1)
        same(tensor, all_values[1])
        out = torch.empty_like(mine)
        dist.scatter(out, [device(all_values[r]) for r in range(ranks)] if rank == 0 else None, src=0)
        same(out, all_values[rank])
        gathered = [torch.empty_like(mine) for _ in range(ranks)] if rank == 1 else None
        dist.gather(mine, gathered, dst=1)
        for actual, expected in zip(gathered or [], all_values):
            same(actual, expected)
    uneven = [torch.arange(r + 1, dtype=torch.float32) + 10 * r for r in range(ranks)]
    out = [torch.empty(r + 1, device="npu") for r in range(ranks)]
    dist.all_gather(out, device(uneven[rank]))
    for actual, expected in zip(out, uneven):
        same(actual, expected)


def scatter_cases(rank: int, ranks: int) -> None:
    for dtype in (torch.float32, torch.bfloat16, torch.int32):
        all_values = [values(r, (2 * ranks, 3), dtype) for r in range(ranks)]
        total = torch.stack(all_values).to(torch.float64).sum(0).to(dtype)
        out = torch.empty(2, 3, dtype=dtype, device="npu")
        dist.reduce_scatter_tensor(out, device(all_values[rank]))
        same(out, total[2 * rank : 2 * rank + 2])
        dist.reduce_scatter(out, [device(part) for part in all_values[rank].chunk(ranks)])
        same(out, total[2 * rank : 2 * rank + 2])


def all_to_all_cases(rank: int, ranks: int) -> None:
    grid = torch.arange(ranks * ranks * 2, dtype=torch.float32).reshape(ranks, ranks, 2)
    out = torch.empty(ranks, 2, device="npu")
    dist.all_to_all_single(out, device(grid[rank]))
    same(out, grid[:, rank])
    # Rank i sends i + j + 1 elements to rank j.
    sizes = [rank + other + 1 for other in range(ranks)]
    mine = torch.cat([torch.full((size,), 100.0 * rank + other) for other, size in enumerate(sizes)])
    out = torch.empty(sum(sizes), device="npu")
    dist.all_to_all_single(out, device(mine), output_split_sizes=sizes, input_split_sizes=sizes)
    same(out, torch.cat([torch.full((size,), 100.0 * other + rank) for other, size in enumerate(sizes)]))
    outs = [torch.empty(size, device="npu") for size in sizes]
    dist.all_to_all(outs, [device(part) for part in mine.split(sizes)])
    for other, (actual, size) in enumerate(zip(outs, sizes)):
        same(actual, torch.full((size,), 100.0 * other + rank))


def message_cases(rank: int, ranks: int) -> None:
    following, previous = (rank + 1) % ranks, (rank - 1) % ranks
    out = torch.empty(1000, device="npu")
    mine = device(torch.full((1000,), float(rank)))
    if rank % 2 == 0:
        dist.send(mine, following)
        dist.recv(out, previous)
    else:
        dist.recv(out, previous)
        dist.send(mine, following)
    same(out, torch.full((1000,), float(previous)))
    big = device(torch.full((1 << 20,), float(rank)))
    got = torch.empty(1 << 20, device="npu")
    for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, big, following), dist.P2POp(dist.irecv, got, previous)]):
        work.wait()
    same(got, torch.full((1 << 20,), float(previous)))


def group_cases(rank: int, ranks: int) -> None:
    dist.barrier()
    everything: list = [None] * ranks
    dist.all_gather_object(everything, {"rank": rank, "text": "x" * rank})
    assert everything == [{"rank": r, "text": "x" * r} for r in range(ranks)]
    told = ["from 0", 7] if rank == 0 else [None, None]
    dist.broadcast_object_list(told, src=0)
    assert told == ["from 0", 7]
    low, high = list(range(ranks // 2)), list(range(ranks // 2, ranks))
    groups = [dist.new_group(low), dist.new_group(high)]
    members = low if rank in low else high
    tensor = device(torch.tensor([float(rank)]))
    dist.all_reduce(tensor, group=groups[0 if rank in low else 1])
    assert tensor.item() == sum(members)
    dist.all_reduce(tensor)
    assert tensor.item() == len(low) * sum(low) + len(high) * sum(high)


def overlap_cases(rank: int, ranks: int) -> None:
    a, b = torch.randn(64, 64), torch.randn(64, 64)
    left, right = device(a), device(b)
    tensors = [device(torch.full((50_000,), float(rank + i))) for i in range(8)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    product = left @ right  # on the default stream, meanwhile
    for i, (work, tensor) in enumerate(zip(works, tensors)):
        work.wait()
        assert (tensor + 0).cpu().eq(sum(range(ranks)) + i * ranks).all()
    torch.testing.assert_close(product.cpu(), a @ b)


def graph_cases(rank: int, ranks: int) -> None:
    static = torch.zeros(256, device="npu", dtype=torch.bfloat16)
    gathered = torch.empty(256 * ranks, device="npu", dtype=torch.bfloat16)
    dist.all_reduce(static.clone())
    torch.npu.synchronize()
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        total = static * 2
        dist.all_reduce(total)
        dist.all_gather_into_tensor(gathered, total)
        out = gathered + 1
    for step in range(5):
        static.fill_(step + rank)
        graph.replay()
        torch.npu.synchronize()
        same(out, torch.full((256 * ranks,), 2.0 * (step * ranks + sum(range(ranks))) + 1, dtype=torch.bfloat16))


def all_cases(rank: int, ranks: int) -> None:
    for case in (reduction_cases, gather_cases, scatter_cases, all_to_all_cases, message_cases, group_cases, overlap_cases, graph_cases):
        case(rank, ranks)
        print("passed", case.__name__, flush=True)


def short_cases(rank: int, ranks: int) -> None:
    """What also runs with many ranks, which take turns on few cores."""
    tensor = device(torch.full((1000,), float(rank), dtype=torch.bfloat16))
    dist.all_reduce(tensor)
    assert tensor.cpu().eq(sum(range(ranks))).all()
    all_to_all_cases(rank, ranks)
    group_cases(rank, ranks)


def mismatch(rank: int, ranks: int) -> None:
    tensor = torch.zeros(4, device="npu")
    dist.all_reduce(tensor)
    torch.npu.synchronize()
    if rank == 0:
        dist.all_reduce(torch.zeros(8, device="npu"))
    else:
        dist.broadcast(tensor, src=1)
    torch.npu.synchronize()
    dist.all_reduce(tensor)
    torch.npu.synchronize()


def killed(rank: int, ranks: int) -> None:
    tensor = torch.zeros(4, device="npu")
    dist.all_reduce(tensor)
    torch.npu.synchronize()
    if rank == ranks - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.all_reduce(tensor)
    torch.npu.synchronize()


def unattended(rank: int, ranks: int) -> None:
    """Nobody waits for the collective that fails: torch_npu's watchdog has to notice."""
    tensor = torch.zeros(4, device="npu")
    dist.all_reduce(tensor)
    torch.npu.synchronize()
    if rank == ranks - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.all_reduce(tensor)
    for _ in range(100):
        time.sleep(1)
    print("the watchdog did nothing", flush=True)


def two_collectives(rank: int, ranks: int) -> None:
    tensor = torch.ones(4, device="npu")
    for _ in range(2):
        dist.all_reduce(tensor)
        torch.npu.synchronize()
    print("result", tensor.cpu().tolist(), flush=True)


def silent(rank: int, ranks: int) -> None:
    """One rank never calls the collective that the others wait in."""
    tensor = torch.zeros(4, device="npu")
    dist.all_reduce(tensor)
    torch.npu.synchronize()
    if rank == ranks - 1:
        # Until the others have told the store that they have failed.
        dist.distributed_c10d._get_default_store().get("failed")
        return
    try:
        dist.all_reduce(tensor)
        torch.npu.synchronize()
    finally:
        dist.distributed_c10d._get_default_store().set("failed", "yes")


def absent(rank: int, ranks: int) -> None:
    """One rank never makes the communicator."""
    store = dist.distributed_c10d._get_default_store()
    if rank == ranks - 1:
        store.get("failed")
        return
    try:
        dist.all_reduce(torch.zeros(4, device="npu"))
    finally:
        store.set("failed", "yes")


def main() -> None:
    case, rank, ranks, store = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    torch.npu.set_device(rank % torch.npu.device_count())
    dist.init_process_group(
        "hccl", init_method=f"file://{store}", rank=rank, world_size=ranks, timeout=datetime.timedelta(seconds=200)
    )
    globals()[case](rank, ranks)
    torch.npu.synchronize()
    dist.destroy_process_group()
    print("finished", flush=True)


if __name__ == "__main__":
    main()
