"""Asynchronous scheduling: vLLM prepares a step while the device runs the one before.

Its V1 runner says ``torch.cuda`` for the streams and events of that, and names the class of the output copy inside ``sample_tokens``, so
there is nothing to override. Here the same functions run with another meaning of these names: copies over globals of their own.
vLLM's modules and torch stay as they are.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable
from typing import Any

import torch


class _Streams:
    """What the runner uses of ``torch.cuda``, on npu."""

    def __getattr__(self, name: str) -> Any:
        return getattr(torch.npu, name)

    @staticmethod
    def Event(blocking: bool = False) -> torch.npu.Event:
        """Waiting for an event of torch.npu always sleeps after a short while, so ``blocking`` changes nothing."""
        return torch.npu.Event()


class _Torch:
    """``torch``, but for ``torch.cuda``."""

    cuda = _Streams()

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


def on_npu(function: Callable[..., Any], **names: Any) -> Callable[..., Any]:
    """A copy of the Python function below ``function``'s decorators, with torch.npu for torch.cuda and ``names`` for globals of these names."""
    plain = inspect.unwrap(function)
    copy = types.FunctionType(
        plain.__code__, {**plain.__globals__, "torch": _Torch(), **names}, plain.__name__, plain.__defaults__, plain.__closure__
    )
    copy.__kwdefaults__ = plain.__kwdefaults__
    return copy
