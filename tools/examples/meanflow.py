"""Trains by MeanFlow's loss (arXiv:2505.13447), whose target needs the network's derivative along a direction.

The network u(z, r, t) attends with a learned bias by relative position. torch.func.jvp gives u and du/dt by forward mode,
through attnc's tangents. Each step compares the gradients of all weights with those by an eager attention in fp64.

    pip install ./tools/python torch
    python tools/examples/meanflow.py
"""

import copy
import sys
import warnings

import torch
from torch import nn

from attnc import CpuWarning
from attnc.torch import flex_attention

B, H, L, D, CHANNELS, STEPS = 4, 2, 16, 8, 4, 8

warnings.simplefilter("ignore", CpuWarning)
torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
print(f"training on {torch.cuda.get_device_name()}" if device == "cuda" else "no GPU here: the CPU reference computes")


def attend(q, k, v, bias):
    return flex_attention(q, k, v, lambda score, b, h, q, k: score + bias[h, q - k + L])


def definition(q, k, v, bias):
    at = torch.arange(L, device=q.device)
    return torch.softmax(q @ k.mT / D**0.5 + bias[:, at[:, None] - at + L], -1) @ v


class Network(nn.Module):
    """u(z, r, t), the mean velocity between times r and t at z [B, L, CHANNELS]."""

    def __init__(self):
        super().__init__()
        self.into, self.qkv = nn.Linear(CHANNELS + 2, H * D), nn.Linear(H * D, 3 * H * D)
        self.out = nn.Sequential(nn.Linear(H * D, 4 * H * D), nn.SiLU(), nn.Linear(4 * H * D, CHANNELS))
        self.bias = nn.Parameter(0.1 * torch.randn(H, 2 * L))

    def forward(self, z, r, t, attend):
        x = self.into(torch.cat((z, r.expand(B, L, 1), t.expand(B, L, 1)), -1))
        q, k, v = self.qkv(x).view(B, L, 3, H, D).permute(2, 0, 3, 1, 4)
        return self.out(x + attend(q, k, v, self.bias).transpose(1, 2).flatten(2))


def loss_of(network, attend, data, noise, r, t):
    z, velocity = (1 - t) * data + t * noise, noise - data
    of = lambda z, r, t: network(z, r, t, attend)
    u, du_dt = torch.func.jvp(of, (z, r, t), (velocity, torch.zeros_like(r), torch.ones_like(t)))
    target = velocity - (t - r) * du_dt
    return (u - target.detach()).square().mean()


network = Network().to(device)
optimizer = torch.optim.Adam(network.parameters(), lr=1e-2)
data = torch.sin(torch.arange(L, device=device)[:, None] * torch.linspace(0.2, 0.8, CHANNELS, device=device)).expand(B, L, -1)
worst, losses = 0.0, []
for step in range(STEPS):
    noise, times = torch.randn(B, L, CHANNELS, device=device), torch.rand(2, B, 1, 1, device=device)
    r, t = times.amin(0), times.amax(0)
    optimizer.zero_grad()
    loss = loss_of(network, attend, data, noise, r, t)
    loss.backward()
    losses.append(loss.item())

    exact = copy.deepcopy(network).double()
    right = loss_of(exact, definition, *(x.double() for x in (data, noise, r, t)))
    expected = torch.autograd.grad(right, [*exact.parameters()])
    for weight, gradient in zip(network.parameters(), expected):
        worst = max(worst, float((weight.grad - gradient).norm() / gradient.norm()))
    optimizer.step()

print(f"loss {losses[0]:.2f} to {losses[-1]:.2f} in {STEPS} steps, largest relative error of a gradient {worst:.1e}")
sys.exit(0 if worst < 1e-3 and losses[-1] < losses[0] else "WRONG")
