"""Reads checkpoints of examples/init_checkpoint.rs back in Python.

    pip install torch transformers safetensors
    python tests/transformers/read_back.py              # INIT_CHECKPOINT may name the example where it is built already

For each family of Hugging Face's models: a small configuration, a checkpoint in several files, every tensor loaded strictly into the
model of `transformers`, the same by `from_pretrained`, and the loss of step zero beside ln V.
"""

import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile

import torch
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.utils import logging

ROOT = pathlib.Path(__file__).resolve().parents[2]
VOCAB = 997
GPT2 = dict(n_embd=64, n_layer=3, n_head=4, n_positions=64, vocab_size=VOCAB)
LLAMA = dict(hidden_size=64, intermediate_size=160, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
             vocab_size=VOCAB, max_position_embeddings=64)
FAMILIES = {
    "gpt2": dict(model_type="gpt2", **GPT2),
    "gpt2, untied": dict(model_type="gpt2", tie_word_embeddings=False, **GPT2),
    "llama": dict(model_type="llama", tie_word_embeddings=False, **LLAMA),
    "llama, tied, with biases": dict(model_type="llama", tie_word_embeddings=True, attention_bias=True, mlp_bias=True, **LLAMA),
    "mistral, wide heads": dict(model_type="mistral", tie_word_embeddings=False, head_dim=32, **LLAMA),
    "qwen2": dict(model_type="qwen2", tie_word_embeddings=False, **LLAMA),
    "olmo2": dict(model_type="olmo2", tie_word_embeddings=False, **LLAMA),
}


def run(config, folder, *options):
    file = folder.with_suffix(".json")
    file.write_text(json.dumps(config))
    built = os.environ.get("INIT_CHECKPOINT")
    example = [built] if built else ["cargo", "run", "-q", "--example", "init_checkpoint", "--"]
    subprocess.run([*example, "--config", file, "--out", folder, "--shard-size", "200KB", *options], check=True, cwd=ROOT,
                   stdout=subprocess.DEVNULL)


def check(name, config, folder):
    run(config, folder, "--dtype", "f32", "--scheme", "gpt2")
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    state = {}
    for file in sorted(set(index["weight_map"].values())):
        tensors = load_file(folder / file)
        assert all(index["weight_map"][key] == file for key in tensors)
        state.update(tensors)
    assert index["metadata"]["total_size"] == sum(4 * tensor.numel() for tensor in state.values())

    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder))
    tied = model.config.tie_word_embeddings
    if tied:
        state["lm_head.weight"] = model.get_input_embeddings().weight.detach()
    shapes = {key: tuple(value.shape) for key, value in model.state_dict().items()}
    assert shapes == {key: tuple(value.shape) for key, value in state.items()}, name
    if tied:
        state["lm_head.weight"] = next(value for key, value in state.items() if key.endswith(("wte.weight", "embed_tokens.weight")))
    model.load_state_dict(state, strict=True)
    for key, value in model.state_dict().items():
        assert torch.equal(value, state[key]), key

    pretrained = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    for key, value in pretrained.state_dict().items():
        assert torch.equal(value, state[key]), key

    down = [value.std().item() for key, value in state.items() if key.endswith(("mlp.c_proj.weight", "down_proj.weight"))]
    expected = 0.02 / math.sqrt(2 * 3)
    assert all(abs(std / expected - 1) < 0.03 for std in down), down
    torch.manual_seed(0)
    tokens = torch.randint(VOCAB, (8, 64))
    with torch.no_grad():
        loss = pretrained.eval()(tokens, labels=tokens).loss.item()
    assert abs(loss - math.log(VOCAB)) < 0.1, (name, loss)

    half = folder.with_name(folder.name + "-bf16")
    run(config, half, "--dtype", "bf16", "--scheme", "gpt2")
    rounded = AutoModelForCausalLM.from_pretrained(half)
    assert rounded.dtype == torch.bfloat16
    for key, value in rounded.state_dict().items():
        assert torch.equal(value, state[key].to(torch.bfloat16)), key
    print(f"{name:26} {sum(p.numel() for p in pretrained.parameters()):8} parameters, loss {loss:.4f}, ln V {math.log(VOCAB):.4f}")


def main():
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as folder:
        for i, (name, config) in enumerate(FAMILIES.items()):
            check(name, config, pathlib.Path(folder) / f"model{i}")
    print("all read back, bit for bit")


if __name__ == "__main__":
    sys.exit(main())
