"""Serves two sequences from a cache in pages: a prompt of each, then token by token.

On a GPU a step is a CUDA graph, which is replayed for all lengths and tables. Without one, the CPU reference computes.

    pip install ./tools/python torch
    python tools/examples/serving.py
"""

import sys
import warnings

import torch

import attnc

B, H, HKV, D, PAGE, PAGES, COLUMNS = 2, 8, 2, 64, 16, 16, 4
PROMPTS, STEPS = (37, 20), 20
MOD = attnc.Mod.parse("q_idx >= kv_idx")

warnings.simplefilter("ignore", attnc.CpuWarning)
torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
print(f"serving on {torch.cuda.get_device_name()}" if device == "cuda" else "no GPU here: the CPU reference computes")


def random(*shape):
    return torch.randn(shape, dtype=torch.bfloat16, device=device)


# What launches read. Each tensor stays where it is; its values change.
pool = {name: torch.full((PAGES, HKV, PAGE, D), torch.nan, dtype=torch.bfloat16, device=device) for name in "kv"}
table = torch.full((B, COLUMNS), -1, dtype=torch.int32, device=device)
lengths = torch.zeros(B, dtype=torch.int32, device=device)

free = list(range(PAGES))
pages = [[] for _ in range(B)]  # of each sequence
seen = [{name: [] for name in "kv"} for _ in range(B)]  # all keys and values, for the check


def grow(tokens):
    """Makes room for more tokens of each sequence, and tells it to the device."""
    for b, count in enumerate(tokens):
        length = int(lengths[b]) + count
        while len(pages[b]) * PAGE < length:
            pages[b].append(free.pop())
        table[b, : len(pages[b])] = torch.tensor(pages[b], dtype=torch.int32)
        lengths[b] = length


def attend(q, k, v):
    """Attention of new tokens to all tokens so far. Their keys and values go into the pages."""
    return attnc.attention(MOD, q, pool["k"], pool["v"], kv_lengths=lengths, page_table=table, new_k=k, new_v=v)


def difference(q, k, v, out, tokens):
    """Adds new tokens to what was seen. Returns the largest difference of out from attention over contiguous keys."""
    largest = 0.0
    for b, count in enumerate(tokens):
        for name, new in (("k", k), ("v", v)):
            seen[b][name].append(new[b, :, new.shape[2] - count :].clone())
        keys, values = (torch.cat(seen[b][name], dim=1).repeat_interleave(H // HKV, 0).double() for name in "kv")
        rows = torch.arange(keys.shape[1] - count, keys.shape[1], device=device)
        mask = rows[:, None] >= torch.arange(keys.shape[1], device=device)
        expected = torch.nn.functional.scaled_dot_product_attention(q[b, :, -count:].double(), keys, values, mask)
        largest = max(largest, float((out[b, :, -count:] - expected).abs().max()))
    return largest


# The prompts: the shorter one is padded in front, since a launch drops rows before position 0.
q, k, v = random(B, H, max(PROMPTS), D), random(B, HKV, max(PROMPTS), D), random(B, HKV, max(PROMPTS), D)
grow(PROMPTS)
worst = difference(q, k, v, attend(q, k, v), PROMPTS)

q, k, v = random(B, H, 1, D), random(B, HKV, 1, D), random(B, HKV, 1, D)  # a token of each sequence
for step in range(STEPS):
    for tensor in (q, k, v):
        tensor.copy_(random(*tensor.shape))
    grow([1] * B)
    if device == "cpu":
        out = attend(q, k, v)
    else:
        if step == 0:
            attend(q, k, v)  # compiles the kernel, which must not happen while a graph is recorded
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                out = attend(q, k, v)
        graph.replay()
    worst = max(worst, difference(q, k, v, out, [1] * B))

how = f"{STEPS} steps" if device == "cpu" else f"{STEPS} replays of one graph"
print(f"lengths {lengths.tolist()}, {PAGES - len(free)} pages, {how}: largest difference {worst:.4f}")
sys.exit(0 if worst < 0.02 else "WRONG")
