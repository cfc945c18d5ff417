"""vLLM's loader, with the checkpoint checked between the making of the model and the reading of its weights."""

from __future__ import annotations

import dataclasses

import torch
from vllm.config import LoadConfig, ModelConfig
from vllm.model_executor.model_loader.default_loader import DefaultModelLoader

from jumar.quantization import checkpoint

# The load format that the platform chooses for quantised models instead of "auto".
NAME = "ascend"


class AscendModelLoader(DefaultModelLoader):
    def __init__(self, load_config: LoadConfig) -> None:
        super().__init__(dataclasses.replace(load_config, load_format="auto"))

    def load_weights(self, model: torch.nn.Module, model_config: ModelConfig) -> None:
        """Raises CheckpointError before the first weight is read."""
        folder, files, are_safetensors, _ = self._prepare_weights(
            getattr(model_config, "model_weights", None) or model_config.model,
            None,
            model_config.revision,
            getattr(model, "fall_back_to_pt_during_load", True),
            getattr(model, "allow_patterns_overrides", None),
        )
        if are_safetensors:
            from vllm.distributed.parallel_state import get_pp_group

            whole = get_pp_group().world_size == 1
            checkpoint.check(model, sorted(files), folder, str(model_config.quantization), whole)
        super().load_weights(model, model_config)
