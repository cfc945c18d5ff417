"""Collectives with unequal parts, between real ranks."""

import multiprocessing
import traceback

import pytest
import torch
import torch.distributed as dist
from jumar.communicator import AscendCommunicator

# Rows of each rank.
SIZES = [[3, 0, 2], [4, 4, 4], [0, 0, 1], [1, 7, 1], [0, 0, 0]]


def rows(rank: int, count: int, salt: int) -> torch.Tensor:
    return torch.randn(count, 5, generator=torch.Generator().manual_seed(100 * salt + rank))


def check(rank: int, world: int) -> None:
    group = dist.group.WORLD
    communicator = AscendCommunicator(group, torch.device("cpu"), group)
    for salt, sizes in enumerate(SIZES):
        parts = [rows(i, size, salt) for i, size in enumerate(sizes)]
        one, two = communicator.all_gatherv([parts[rank], parts[rank] * 2], sizes=sizes)
        assert torch.equal(one, torch.cat(parts)) and torch.equal(two, torch.cat(parts) * 2)
        whole = [rows(i, sum(sizes), 50 + salt) for i in range(world)]
        mine = communicator.reduce_scatterv(whole[rank].clone(), dim=0, sizes=sizes)
        torch.testing.assert_close(mine, sum(whole).split(sizes)[rank], rtol=1e-6, atol=1e-6)
    equal = rows(rank, 4, 9)
    assert torch.equal(communicator.all_gatherv(equal), torch.cat([rows(i, 4, 9) for i in range(world)]))
    assert communicator.reduce_scatterv(torch.ones(6, 2), dim=0).tolist() == [[world] * 2] * 2
    with pytest.raises(NotImplementedError, match="dimension 1"):
        communicator.all_gatherv(equal, dim=1)
    with pytest.raises(NotImplementedError, match="dimension -1"):
        communicator.reduce_scatterv(equal)


def run(rank: int, world: int, store: str, failures: multiprocessing.Queue) -> None:
    try:
        dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
        check(rank, world)
        dist.destroy_process_group()
    except BaseException:
        failures.put(traceback.format_exc())


def test_unequal_parts_arrive_whole(tmp_path):
    world, context = 3, multiprocessing.get_context("fork")
    failures = context.SimpleQueue()
    ranks = [context.Process(target=run, args=(rank, world, str(tmp_path / "store"), failures)) for rank in range(world)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join(120)
    assert failures.empty(), failures.get()
    assert [process.exitcode for process in ranks] == [0] * world
