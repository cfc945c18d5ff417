"""How many devices a configuration asks for, and simulated ones to match where there is no NPU."""

from __future__ import annotations

import json
import os
from collections.abc import MutableMapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vllm.config import ParallelConfig


def local_devices(parallel: ParallelConfig) -> int:
    """Devices of this machine that the ranks of one server take: one each."""
    return parallel.local_world_size * parallel.data_parallel_size_local


def provide(parallel: ParallelConfig, environ: MutableMapping[str, str] = os.environ) -> None:
    """Sets what the worker processes will read. Only for hostcann: hardware has the devices that it has.

    What the user set stays: JUMAR_DEVICES (too few are an error of the worker that has none), JUMAR_THREADS (by
    default the ranks, which compute at the same time, share the cores), and Ray's count of NPUs.
    """
    devices = local_devices(parallel)
    if devices < 2:
        return
    environ.setdefault("JUMAR_DEVICES", str(devices))
    environ.setdefault("JUMAR_THREADS", str(max(1, len(os.sched_getaffinity(0)) // devices)))
    # Ray finds NPUs by their device files; a local cluster that vLLM starts is told of the simulated ones.
    environ.setdefault("RAY_OVERRIDE_RESOURCES", json.dumps({"NPU": int(environ["JUMAR_DEVICES"])}))
