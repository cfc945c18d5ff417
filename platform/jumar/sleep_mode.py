"""Sleep mode: the engine's device memory goes back to the system and returns to the same addresses.

vLLM tags what it allocates (weights, kv_cache, runtime, workspace) by a context manager around each allocation. Here
the context routes torch_npu's allocations to a memory pool over ``jumar_sleep_allocator``, whose addresses and bytes
are apart. Level 1 copies the weights to the host, level 2 forgets them; the KV cache is forgotten at both.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jumar_sleep_allocator as allocator
import torch
from vllm.device_allocator import DEFERRABLE_TAGS
from vllm.device_allocator.sleep_mode_backend import SleepModeBackend, SleepModeBackendFactory
from vllm.logger import init_logger

logger = init_logger("vllm.jumar.sleep_mode")

BACKEND = "npu"

# Kept at every level: what the runner allocates beside the cache while it sets that up.
KEPT_TAGS = ("runtime",)

_plug: Any = None  # torch_npu's handle of the allocator; freed memory goes through it until the process ends


def register() -> None:
    """Registers the backend with vLLM; may be called again in the same process."""
    try:
        SleepModeBackendFactory.get_backend_class(BACKEND)
    except ValueError:
        SleepModeBackendFactory.register_backend(BACKEND, "jumar.sleep_mode", "NpuSleepBackend")


@contextmanager
def use_memory_pool(tag: str) -> Iterator[None]:
    """What this thread allocates on the device inside the context can sleep, as part of ``tag``."""
    global _plug
    if _plug is None:
        _plug = torch.npu.memory.NPUPluggableAllocator(allocator.__file__, allocator.MALLOC, allocator.FREE)
    outer = allocator.set_tag(tag)
    try:
        # A pool of its own: a block that an earlier context freed may lie in memory of another tag.
        pool = torch.npu.memory.MemPool(_plug.allocator())
        with torch.npu.memory.use_mem_pool(pool):
            yield
    finally:
        allocator.set_tag(outer)
    # Nothing more is allocated from it. Without an owner torch_npu gives back what is free in it: now what was temporary,
    # such as weights before their cast, and the rest as its tensors die.
    del pool
    _give_back_cached()


def statistics() -> list[allocator.TagStats]:
    """What each tag of this process's device holds."""
    return allocator.stats(torch.npu.current_device())


class NpuSleepBackend(SleepModeBackend):
    """vLLM's suspend and resume over the pools of this process; see SleepModeBackend."""

    def suspend(self, level: int = 1) -> None:
        _give_back_cached()
        allocator.sleep(torch.npu.current_device(), [*KEPT_TAGS, *(["weights"] if level == 1 else [])])
        self._state = "SUSPENDED"

    def resume(self, tags: list[str] | None = None) -> None:
        asleep = [stats.tag for stats in statistics() if stats.num_asleep > 0]
        # A selective wake may defer these only; all else is needed by either.
        wanted = [tag for tag in asleep if tags is None or tag in tags or tag not in DEFERRABLE_TAGS]
        if not wanted:
            logger.warning("nothing of %s sleeps", tags or "the device's memory")
            return
        _give_back_cached()
        self._state = "RESUMING"
        allocator.wake(torch.npu.current_device(), wanted)
        self._state = "SUSPENDED" if set(asleep) - set(wanted) else "RUNNING"

    def discard(self, tags: tuple[str, ...]) -> None:
        allocator.discard(torch.npu.current_device(), list(tags))
        self._state = "SUSPENDED"

    @classmethod
    def preserves_communicators(cls) -> bool:
        return True


def _give_back_cached() -> None:
    gc.collect()
    torch.npu.empty_cache()
