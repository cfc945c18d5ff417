"""Folding leaves the model the same function, is undone where it wouldn't, and makes outliers cost less."""

import os
import sys

import pytest

os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
sys.modules["torch_npu"] = None  # transformers would load it

import torch
import transformers

from tools.quantize import folding, schemes
from tools.quantize.calibration import LayerRunner

COMMON = dict(
    vocab_size=96, hidden_size=64, intermediate_size=160, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
    tie_word_embeddings=False, max_position_embeddings=64,
)  # fmt: skip
MODELS = {
    "llama": lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(**COMMON)),
    "qwen2": lambda: transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**COMMON)),  # biases of q, k and v
    "qwen3": lambda: transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**COMMON)),  # norms of queries and keys
}


def network(kind, outliers=True):
    """Random weights, float32 with values of bfloat16; a few channels of the norms and of up_proj are far greater than the others."""
    torch.manual_seed(7)
    model = MODELS[kind]().eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_((torch.randn(parameter.shape) * (1.0 if parameter.dim() == 1 else 0.2)).bfloat16())
            if outliers and name.endswith("layernorm.weight"):
                parameter[[3, 17]] = 40.0
            if outliers and name.endswith("up_proj.weight"):
                parameter[[5, 99]] *= 32
    return model


def rows():
    return torch.randint(0, 96, (4, 32), generator=torch.Generator().manual_seed(1))


def fold_all(model, scheme, wanted=None):
    """Folds every site of every layer: what was found and what was done."""
    runner = LayerRunner(model, rows())
    linear = {name for name, module in model.named_modules() if isinstance(module, torch.nn.Linear) and name != "lm_head"}
    found, done = [], []
    for index in range(len(runner.layers)):
        sites = folding.sites(runner.calls(index), linear if wanted is None else wanted)
        seen = runner.observe(index, [site.consumers[0] for site in sites], with_hessians=False)
        for site in sites:
            modules, inputs = runner.modules(index), seen[site.consumers[0]]
            fold = folding.fold(site, modules, inputs, scheme, torch.bfloat16, lambda: runner.outputs(index, rows=1))
            found.append(site)
            if fold is not None:
                done.append(fold)
        runner.hidden = runner.outputs(index)
    return found, done


@torch.no_grad()
def logits(model):
    return model.double()(rows()).logits


@pytest.mark.parametrize("scheme", ["w8a8", "w8a8_static", "fp8", "w4a16"])
@pytest.mark.parametrize("kind", MODELS)
def test_the_model_stays_the_same_function(kind, scheme):
    model = network(kind)
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    exact = logits(network(kind))
    found, done = fold_all(model, schemes.make(scheme, group_size=32 if scheme == "w4a16" else None))
    assert [site.producer.rpartition(".")[2] for site in found] == ["input_layernorm", "post_attention_layernorm", "up_proj"] * 2
    assert [len(site.consumers) for site in found] == [3, 2, 1] * 2
    if scheme.startswith("w8a8"):
        assert len(done) == len(found)
    for fold in done:
        assert fold.gain_db > 0
        norm = model.get_submodule(fold.producer).weight.float()
        assert not torch.equal(norm, before[f"{fold.producer}.weight"])
        # What is not quantised is written as it is here.
        assert norm.dim() == 2 or torch.equal(norm, norm.bfloat16().float())
    assert float((logits(model) - exact).norm() / exact.norm()) < 5e-5  # float32 weights and norms, through softmaxes; a part left out: > 1e-3


def test_every_part_of_a_fold_is_needed():
    model = network("llama")
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    exact = logits(network("llama"))
    _, done = fold_all(model, schemes.make("w8a8"))
    assert len(done) == 6
    for fold in done:
        for name in (fold.producer, *fold.consumers):
            weight = model.get_submodule(name).weight.data
            kept = weight.clone()
            weight.copy_(before[f"{name}.weight"])
            assert float((logits(model) - exact).norm() / exact.norm()) > 1e-3, name
            weight.copy_(kept)


def test_layers_that_stay_as_they_are_are_not_folded_into():
    model = network("llama")
    wanted = {name for name, module in model.named_modules() if isinstance(module, torch.nn.Linear)}
    wanted -= {"lm_head", "model.layers.0.self_attn.k_proj", "model.layers.1.mlp.up_proj"}
    found, _ = fold_all(model, schemes.make("w8a8"), wanted)
    names = [site.producer.removeprefix("model.layers.") for site in found]
    assert names == ["0.post_attention_layernorm", "0.mlp.up_proj", "1.input_layernorm"]


def test_a_fold_that_changes_the_outputs_is_undone():
    """A norm that multiplies by 1 + weight, as Gemma's does; and an activation after up_proj."""

    class Norm(type(network("llama").model.norm)):
        def forward(self, hidden):
            return super().forward(hidden) + hidden

    class Activated(torch.nn.Linear):
        def forward(self, inputs):
            return torch.tanh(super().forward(inputs))

    model = network("llama")
    model.model.layers[0].input_layernorm.__class__ = Norm
    model.model.layers[1].mlp.up_proj.__class__ = Activated
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    found, done = fold_all(model, schemes.make("w8a8"))
    undone = {site.producer for site in found} - {fold.producer for fold in done}
    assert undone == {"model.layers.0.input_layernorm", "model.layers.1.mlp.up_proj"}
    for site in found:
        if site.producer in undone:
            for name in (site.producer, *site.consumers):
                assert name == "model.layers.1.mlp.up_proj" or torch.equal(model.get_submodule(name).weight, before[f"{name}.weight"]), name


def test_without_outliers_little_is_gained_and_with_them_much():
    plain, many = (fold_all(network("llama", outliers), schemes.make("w8a8"))[1] for outliers in (False, True))
    assert max(fold.gain_db for fold in plain) < 4
    assert min(fold.gain_db for fold in many) > 6
