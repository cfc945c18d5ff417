"""Collectives of one group of ranks: what vLLM's base class leaves to devices, for experts over data-parallel ranks.

Ranks have different numbers of tokens, and HCCL's collectives take equal parts: each is padded to the longest. vLLM knows the
numbers beforehand, so nothing waits for the device.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from vllm.distributed.device_communicators.all2all import AgRsAll2AllManager
from vllm.distributed.device_communicators.base_device_communicator import DeviceCommunicatorBase
from vllm.logger import init_logger

logger = init_logger("vllm.jumar.communicator")

ALL2ALL_BACKEND = "allgather_reducescatter"


class AscendCommunicator(DeviceCommunicatorBase):
    """Every rank sees all tokens, computes with its own experts, and gets the sum for its tokens: an all-gather, then a reduce-scatter."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.use_all2all:
            if self.all2all_backend != ALL2ALL_BACKEND:
                logger.warning("all2all backend %s is not supported on npu, using %s", self.all2all_backend, ALL2ALL_BACKEND)
            self.all2all_manager = AgRsAll2AllManager(self.cpu_group)

    def all_gatherv(
        self, input_: torch.Tensor | list[torch.Tensor], dim: int = 0, sizes: list[int] | None = None
    ) -> torch.Tensor | list[torch.Tensor]:
        """The ranks' rows one behind the other; ``sizes``: how many each has, if not all the same."""
        if isinstance(input_, list):
            return [self.all_gatherv(tensor, dim, sizes) for tensor in input_]
        if dim != 0:
            raise NotImplementedError(f"gathering of unequal parts along dimension {dim} is not supported on npu, only 0")
        sizes = sizes or [input_.shape[0]] * self.world_size
        most = max(sizes)
        mine = input_.new_zeros(most, *input_.shape[1:])
        mine[: input_.shape[0]] = input_
        every = input_.new_empty(self.world_size * most, *input_.shape[1:])
        dist.all_gather_into_tensor(every, mine, group=self.device_group)
        if min(sizes) == most:
            return every
        return torch.cat([part[:size] for part, size in zip(every.split(most), sizes)])

    def reduce_scatterv(self, input_: torch.Tensor, dim: int = -1, sizes: list[int] | None = None) -> torch.Tensor:
        """This rank's rows of the sum over the ranks; ``sizes``: how many each gets, if not all the same."""
        if dim not in (0, -input_.dim()):
            raise NotImplementedError(f"scattering of unequal parts along dimension {dim} is not supported on npu, only 0")
        sizes = sizes or [input_.shape[0] // self.world_size] * self.world_size
        most = max(sizes)
        if min(sizes) < most:
            padded = input_.new_zeros(self.world_size, most, *input_.shape[1:])
            for place, part, size in zip(padded, input_.split(sizes), sizes):
                place[:size] = part
            input_ = padded.flatten(0, 1)
        sum_ = input_.new_empty(most, *input_.shape[1:])
        dist.reduce_scatter_tensor(sum_, input_.contiguous(), group=self.device_group)
        return sum_[: sizes[self.rank_in_group]]

    def dispatch_router_logits(
        self,
        hidden_states: torch.Tensor,
        router_logits: torch.Tensor,
        is_sequence_parallel: bool = False,
        extra_tensors: list[torch.Tensor] | None = None,
    ) -> tuple:
        return self.all2all_manager.dispatch_router_logits(hidden_states, router_logits, is_sequence_parallel, extra_tensors)

    def combine(self, hidden_states: torch.Tensor, is_sequence_parallel: bool = False) -> torch.Tensor:
        return self.all2all_manager.combine(hidden_states, is_sequence_parallel)
