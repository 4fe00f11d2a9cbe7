"""Starts GPT-2 small as nanoGPT does, in PyTorch: its modules with their own first draws, then N(0, 0.02) over them, then
the output projections again by 1 / sqrt(2 layers). Prints seconds and the peak of resident memory over the parameters.

    python -m pip install torch
    python benches/rivals/gpt2.py [threads]
"""

import math
import resource
import sys
import time

import torch
from torch import nn

LAYERS, HEADS, WIDTH, VOCABULARY, CONTEXT = 12, 12, 768, 50304, 1024


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1 = nn.LayerNorm(WIDTH)
        self.c_attn = nn.Linear(WIDTH, 3 * WIDTH)
        self.c_proj = nn.Linear(WIDTH, WIDTH)
        self.ln_2 = nn.LayerNorm(WIDTH)
        self.c_fc = nn.Linear(WIDTH, 4 * WIDTH)
        self.mlp_c_proj = nn.Linear(4 * WIDTH, WIDTH)


class Gpt2(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(VOCABULARY, WIDTH)
        self.wpe = nn.Embedding(CONTEXT, WIDTH)
        self.h = nn.ModuleList(Block() for _ in range(LAYERS))
        self.ln_f = nn.LayerNorm(WIDTH)
        self.lm_head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.wte.weight = self.lm_head.weight
        self.apply(self.start)
        for name, parameter in self.named_parameters():
            if name.endswith("c_proj.weight"):
                nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * LAYERS))

    @staticmethod
    def start(module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.02)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)


def main():
    torch.set_num_threads(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        model = Gpt2()
        seconds.append(time.perf_counter() - start)
        count = sum(p.numel() for p in model.parameters())
        if len(seconds) == 1:
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
        del model
    print(f"{count} parameters: median {sorted(seconds)[1]:.2f} s, peak {peak / (4 * count):.2f} times the parameters")


if __name__ == "__main__":
    main()
