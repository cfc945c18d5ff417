"""Checkpoints that can't be served: each is refused before its weights are read, in one message with names and mend."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests import checkpoints_writer

TINY_LLAMA = Path(__file__).parents[1] / "third_party" / "models" / "tiny_llama"
DOWN = "model.layers.1.mlp.down_proj"
Q = "model.layers.0.self_attn.q_proj"


@pytest.fixture(scope="module")
def sound(tmp_path_factory) -> Callable[[str], Path]:
    """A sound checkpoint of a scheme, written once."""
    root = tmp_path_factory.mktemp("checkpoints")

    def once(name: str) -> Path:
        if not (root / name).exists():
            checkpoints_writer.write(checkpoints_writer.SCHEMES[name](), TINY_LLAMA, root / name)
        return root / name

    return once


@pytest.fixture(scope="module", autouse=True)
def one_rank(tmp_path_factory):
    from vllm.config import VllmConfig, set_current_vllm_config
    from vllm.distributed.parallel_state import (
        cleanup_dist_env_and_memory,
        init_distributed_environment,
        initialize_model_parallel,
    )
    from vllm.plugins import load_general_plugins

    load_general_plugins()
    with set_current_vllm_config(VllmConfig()):
        init_distributed_environment(1, 0, f"file://{tmp_path_factory.mktemp('store') / 'file'}", 0, "gloo")
        initialize_model_parallel()
    yield
    cleanup_dist_env_and_memory()


def load(folder: Path, **options: object) -> None:
    """What the engine does up to the weights' end."""
    from vllm.config import set_current_vllm_config
    from vllm.engine.arg_utils import EngineArgs
    from vllm.model_executor.model_loader import get_model

    config = EngineArgs(model=str(folder), dtype="bfloat16", max_model_len=64, **options).create_engine_config()
    with set_current_vllm_config(config):
        get_model(vllm_config=config)


class Copy:
    """A checkpoint to be broken."""

    def __init__(self, source: Path, folder: Path) -> None:
        self.folder = folder
        shutil.copytree(source, folder, ignore=shutil.ignore_patterns("reference"))
        self.file = folder / "model.safetensors"

    def tensors(self, change: Callable[[dict[str, torch.Tensor]], None]) -> "Copy":
        tensors = load_file(self.file)
        change(tensors)
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, self.file)
        return self

    def json(self, change: Callable[[dict], None], file: str = "config.json") -> "Copy":
        path = self.folder / file
        content = json.loads(path.read_text())
        change(content)
        path.write_text(json.dumps(content))
        return self


@pytest.fixture
def copy(sound, tmp_path):
    return lambda scheme: Copy(sound(scheme), tmp_path / scheme)


def refused(folder: Path, **options: object) -> str:
    """The message, which is one line that the server shows whole."""
    with pytest.raises(Exception) as error:
        load(folder, **options)
    problems = getattr(error.value, "errors", None)  # pydantic's
    message = "; ".join(p["msg"] for p in problems()) if callable(problems) else str(error.value)
    print(message)
    assert "\n" not in message and len(message) < 900
    return message


def group_of(config: dict) -> dict:
    return config["quantization_config"]["config_groups"]["group_0"]


def test_sound_ones_load(sound):
    load(sound("w8a8"))


def test_missing_scale(copy):
    broken = copy("w8a8").tensors(lambda tensors: tensors.pop(f"{DOWN}.weight_scale"))
    message = refused(broken.folder)
    assert f"1 tensors are missing ({DOWN}.weight_scale)" in message and "fetch all of its files again" in message


def test_missing_layer(copy):
    def drop(tensors):
        for name in [name for name in tensors if ".layers.2." in name]:
            del tensors[name]

    message = refused(copy("w8a8").tensors(drop).folder)
    assert "14 tensors are missing (model.layers.2.mlp.down_proj.weight, " in message and "and 10 more" in message


def test_extra_tensor(copy):
    broken = copy("w8a8").tensors(lambda tensors: tensors.update({f"{Q}.weight_zero_point": torch.zeros(512, 1)}))
    assert f"1 tensors have no place in the model ({Q}.weight_zero_point)" in refused(broken.folder)


def test_wrong_shape(copy):
    def cut(tensors):
        tensors[f"{DOWN}.weight_scale"] = tensors[f"{DOWN}.weight_scale"][:128]

    assert f"wrong shape: {DOWN}.weight_scale is [128, 1], not [256, 1]" in refused(copy("w8a8").tensors(cut).folder)


def test_wrong_dtype(copy):
    def widen(tensors):
        tensors[f"{Q}.weight"] = tensors[f"{Q}.weight"].bfloat16()

    assert f"wrong dtype: {Q}.weight is bfloat16, not int8" in refused(copy("w8a8").tensors(widen).folder)


def test_another_group_size_than_described(copy):
    broken = copy("w4a16").json(lambda config: group_of(config)["weights"].update(group_size=64))
    message = refused(broken.folder)
    assert "is [256, 4], not [256, 8] (groups of 64 of the 512 inputs)" in message


def test_group_size_that_does_not_divide(copy):
    broken = copy("w4a16").json(lambda config: group_of(config)["weights"].update(group_size=96))
    message = refused(broken.folder)
    assert "256 inputs are no multiple of the group size 96" in message and "quantise with one that divides" in message


@pytest.mark.parametrize("value, shown", [(float("nan"), "nan"), (float("inf"), "inf"), (0.0, "0"), (-0.25, "-0.25")])
def test_scale_that_is_no_scale(copy, value, shown):
    def spoil(tensors):
        tensors[f"{Q}.weight_scale"][3] = value

    assert f"bad scales: {Q}.weight_scale has {shown} (1 of 512)" in refused(copy("w8a8").tensors(spoil).folder)


def test_truncated_file(copy):
    broken = copy("w8a8")
    broken.file.write_bytes(broken.file.read_bytes()[:-1000])
    message = refused(broken.folder)
    assert f"{broken.file} is corrupt or truncated" in message and "fetch it again" in message


def test_unknown_scheme(copy):
    broken = copy("w8a8").json(lambda config: group_of(config)["input_activations"].update(num_bits=16))
    message = refused(broken.folder)
    assert "W8A16" in message and "supported are" in message


def test_unknown_method(copy):
    broken = copy("w8a8").json(lambda config: config["quantization_config"].update(quant_method="marvellous"))
    assert "marvellous" in refused(broken.folder)


def test_unknown_kv_cache_scheme(copy):
    scheme = dict(num_bits=4, type="int", strategy="tensor", dynamic=False, symmetric=True)
    broken = copy("w8a8").json(lambda config: config["quantization_config"].update(kv_cache_scheme=scheme))
    message = refused(broken.folder)
    assert "num_bits=4" in message and "num_bits=8" in message and "Take it out of config.json" in message


def test_mixed_types_in_a_fused_module(copy):
    name = "model.layers.0.self_attn.k_proj.weight"
    broken = copy("modelslim_w8a8_dynamic").json(lambda types: types.update({name: "W8A8"}), "quant_model_description.json")
    message = refused(broken.folder)
    assert "model.layers.0.self_attn.k_proj: W8A8, model.layers.0.self_attn.v_proj: W8A8_DYNAMIC" in message


def test_unknown_type_of_modelslim(copy):
    broken = copy("modelslim_w8a8").json(lambda types: types.update({f"{DOWN}.weight": "W3A3"}), "quant_model_description.json")
    message = refused(broken.folder)
    assert f"W3A3 (such as of {DOWN})" in message and "supported are FLOAT, W8A8, W8A8_DYNAMIC" in message


def test_format_that_the_chip_lacks(sound):
    message = refused(sound("fp8"))
    assert "FP8 needs Ascend950; this is Ascend910B2: use an INT8 W8A8 checkpoint" in message


def test_the_server_ends_with_that_message(copy):
    from tests.server_process import ServerProcess

    def spoil(tensors):
        tensors[f"{Q}.weight_scale"][3] = float("nan")

    broken = copy("w8a8").tensors(spoil)
    status, output = ServerProcess(f"--model={broken.folder}", "--max-model-len=64").run()
    (line,) = [line for line in output.splitlines() if line.startswith("jumar: error: ")]
    assert status != 0 and "Traceback" not in output
    assert f"bad scales: {Q}.weight_scale has nan (1 of 512): quantise the model again" in line
