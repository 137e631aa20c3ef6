"""GPT-2's training step in PyTorch, for tools/bench, which runs it in turn with bench/step.

    gpt2_torch.py FOLDER --threads 2 --batch 4 --seq 256 --dtype f32|bf16 --mode eager|compile

FOLDER is what `bench/step --export` wrote: config.json, model.safetensors, tokens.u16. Each line on standard input is a
number of steps; for each step a line goes out, with its seconds and its loss. At the end of the input follows the peak of
the resident set. The step is the one of bench/step: the same batch every time, no dropout, clipping at 1, AdamW, and in
bf16 PyTorch's own autocast. The fastest forms that PyTorch has are used: scaled_dot_product_attention, fused AdamW.
"""

import argparse
import json
import math
import sys
import time
from pathlib import Path

import torch
from torch.nn import functional

from exported import read_config, read_tokens, read_weights


class Layer(torch.nn.Module):
    def __init__(self, weights, name, config):
        super().__init__()
        width = config["n_embd"]
        self.n_heads = config["n_head"]
        self.norm_1 = torch.nn.LayerNorm(width, eps=config["layer_norm_epsilon"])
        self.norm_2 = torch.nn.LayerNorm(width, eps=config["layer_norm_epsilon"])
        inner = config.get("n_inner") or 4 * width
        self.qkv = torch.nn.Linear(width, 3 * width)
        self.out = torch.nn.Linear(width, width)
        self.up = torch.nn.Linear(width, inner)
        self.down = torch.nn.Linear(inner, width)
        with torch.no_grad():
            for module, part in ((self.norm_1, "ln_1"), (self.norm_2, "ln_2")):
                module.weight.copy_(weights[f"{name}.{part}.weight"])
                module.bias.copy_(weights[f"{name}.{part}.bias"])
            parts = ("attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj")
            # HuggingFace keeps these as [in, out].
            for module, part in zip((self.qkv, self.out, self.up, self.down), parts):
                module.weight.copy_(weights[f"{name}.{part}.weight"].T)
                module.bias.copy_(weights[f"{name}.{part}.bias"])

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (
            part.view(b, t, self.n_heads, d // self.n_heads).transpose(1, 2)
            for part in self.qkv(self.norm_1(x)).split(d, dim=2)
        )
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, d))
        return x + self.down(functional.gelu(self.up(self.norm_2(x)), approximate="tanh"))


class Gpt2(torch.nn.Module):
    def __init__(self, weights, config):
        super().__init__()
        width = config["n_embd"]
        self.tokens = torch.nn.Parameter(weights["wte.weight"])
        self.positions = torch.nn.Parameter(weights["wpe.weight"])
        self.layers = torch.nn.ModuleList(
            Layer(weights, f"h.{i}", config) for i in range(config["n_layer"])
        )
        self.norm = torch.nn.LayerNorm(width, eps=config["layer_norm_epsilon"])
        with torch.no_grad():
            self.norm.weight.copy_(weights["ln_f.weight"])
            self.norm.bias.copy_(weights["ln_f.bias"])

    def forward(self, ids, labels):
        x = functional.embedding(ids, self.tokens) + self.positions[: ids.shape[1]]
        for layer in self.layers:
            x = layer(x)
        logits = functional.linear(self.norm(x), self.tokens)
        return functional.cross_entropy(logits.flatten(0, 1), labels.flatten())


def make_optimizer(model):
    """As yoke: weights decay, biases and norms do not."""
    parameters = list(model.parameters())
    groups = [
        {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": 0.1},
        {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
    ]
    options = {"lr": 1e-4, "betas": (0.9, 0.95), "eps": 1e-8}
    try:
        return torch.optim.AdamW(groups, fused=True, **options)
    except (RuntimeError, TypeError):
        return torch.optim.AdamW(groups, **options)


def read_batch(folder, batch, seq):
    tokens = torch.from_numpy(read_tokens(folder).astype("int64"))
    ids = tokens[: batch * seq].view(batch, seq)
    return ids, tokens[1 : batch * seq + 1].view(batch, seq)


def peak_bytes():
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--seq", type=int, default=256)
    parser.add_argument("--dtype", choices=("f32", "bf16"), default="f32")
    parser.add_argument("--mode", choices=("eager", "compile"), default="eager")
    return parser.parse_args()


def main():
    options = parse()
    torch.set_num_threads(options.threads)
    torch.set_flush_denormal(True)
    weights = {name: torch.from_numpy(values) for name, values in read_weights(options.folder).items()}
    model = Gpt2(weights, read_config(options.folder))
    optimizer = make_optimizer(model)
    # What the model has copied need not be held twice.
    del weights
    parameters = list(model.parameters())
    ids, labels = read_batch(options.folder, options.batch, options.seq)
    compute = torch.compile(model) if options.mode == "compile" else model

    def step():
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=options.dtype == "bf16"):
            loss = compute(ids, labels)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.item()

    for line in sys.stdin:
        for _ in range(int(line)):
            start = time.perf_counter()
            loss = step()
            seconds = time.perf_counter() - start
            assert math.isfinite(loss)
            print(json.dumps({"seconds": seconds, "loss": loss}), flush=True)
    print(json.dumps({"peak_bytes": peak_bytes(), "torch": torch.__version__}), flush=True)


if __name__ == "__main__":
    main()
