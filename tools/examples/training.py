"""Learns a bias by relative position, as a model would: forward, loss, backward, a step of descent.

The gradient of the captured bias comes from attnc's backward kernels, or from the CPU reference. Each step compares it
with PyTorch's autograd of the definition.

    pip install ./tools/python torch
    python tools/examples/training.py
"""

import sys
import warnings

import torch
from attnc import CpuWarning
from attnc.torch import create_block_mask, flex_attention

B, H, L, D, STEPS = 1, 4, 96, 32, 12

warnings.simplefilter("ignore", CpuWarning)
torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
print(f"training on {torch.cuda.get_device_name()}" if device == "cuda" else "no GPU here: the CPU reference computes")

q, k, v = (torch.randn(B, H, L, D, device=device) for _ in range(3))
mask = create_block_mask(lambda b, h, q, k: q >= k, None, None, L, L, device=device)
distance = (torch.arange(L)[:, None] - torch.arange(L)).to(device)


def attend(bias):
    """Attention with a bias of [H, L] by distance, under a causal mask."""
    return flex_attention(q, k, v, lambda score, b, h, q, k: score + bias[h, q - k], mask)


def definition(bias):
    """The same in fp64, by PyTorch's operations."""
    bias = bias.double()[:, distance.clamp(min=0)].masked_fill(distance < 0, -torch.inf)
    return torch.nn.functional.scaled_dot_product_attention(q.double(), k.double(), v.double(), bias)


target = attend(-0.3 * torch.arange(L, device=device).expand(H, L).contiguous())  # what is to be learned
bias = torch.nn.Parameter(torch.zeros(H, L, device=device))
optimizer = torch.optim.Adam([bias], lr=0.2)
worst, losses = 0.0, []
for step in range(STEPS):
    loss = (attend(bias) - target).square().mean()
    (expected,) = torch.autograd.grad((definition(bias) - target).square().mean(), bias)
    optimizer.zero_grad()
    loss.backward()
    worst = max(worst, float((bias.grad - expected).norm() / expected.norm()))
    losses.append(loss.item())
    optimizer.step()

print(f"loss {losses[0]:.4f} to {losses[-1]:.4f} in {STEPS} steps, largest relative error of a gradient {worst:.1e}")
sys.exit(0 if worst < 1e-3 and losses[-1] < losses[0] / 2 else "WRONG")
