"""Makes small GPT-2-like files with PyTorch, as tests/promises/audit_files.rs reads them.

    python tests/files/make.py tests/files

Needs torch and safetensors. The modules follow the structure of nanoGPT (nn.Linear, fused c_attn, tied head) and of Hugging Face's
GPT-2 (Conv1D, a mask saved beside the parameters).
"""
import math, sys
import torch
from torch import nn
from safetensors.torch import save_file

LAYERS, D, VOCAB, CONTEXT = 2, 24, 80, 16


class Conv1D(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(n_in, n_out))
        self.bias = nn.Parameter(torch.zeros(n_out))


class Attention(nn.Module):
    def __init__(self, linear):
        super().__init__()
        self.c_attn, self.c_proj = linear(D, 3 * D), linear(D, D)


class Mlp(nn.Module):
    def __init__(self, linear):
        super().__init__()
        self.c_fc, self.c_proj = linear(D, 4 * D), linear(4 * D, D)


class Block(nn.Module):
    def __init__(self, linear):
        super().__init__()
        self.ln_1, self.attn = nn.LayerNorm(D), Attention(linear)
        self.ln_2, self.mlp = nn.LayerNorm(D), Mlp(linear)


class Gpt(nn.Module):
    def __init__(self, linear):
        super().__init__()
        self.transformer = nn.ModuleDict(dict(
            wte=nn.Embedding(VOCAB, D), wpe=nn.Embedding(CONTEXT, D),
            h=nn.ModuleList(Block(linear) for _ in range(LAYERS)), ln_f=nn.LayerNorm(D)))
        self.lm_head = nn.Linear(D, VOCAB, bias=False)
        self.transformer.wte.weight = self.lm_head.weight
        for name, p in self.named_parameters():
            if name.endswith("c_proj.weight"):
                nn.init.normal_(p, 0.0, 0.02 / math.sqrt(2 * LAYERS))
            elif name.endswith("bias"):
                nn.init.zeros_(p)
            elif p.dim() == 2:
                nn.init.normal_(p, 0.0, 0.02)


out = sys.argv[1]
torch.manual_seed(1337)
nano = Gpt(nn.Linear).state_dict()
save_file({k: v.clone().to(torch.bfloat16) for k, v in nano.items()}, f"{out}/nanogpt.safetensors", {"format": "pt"})
hf = Gpt(Conv1D).state_dict()
hf = {k.removeprefix("transformer."): v.clone().to(torch.float16) for k, v in hf.items() if k != "lm_head.weight"}
for layer in range(LAYERS):
    hf[f"h.{layer}.attn.bias"] = torch.tril(torch.ones(CONTEXT, CONTEXT, dtype=torch.uint8)).view(1, 1, CONTEXT, CONTEXT)
save_file(hf, f"{out}/gpt2-hf.safetensors", {"format": "pt"})
