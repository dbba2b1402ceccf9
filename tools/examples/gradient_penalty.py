"""Trains a critic with a gradient penalty (WGAN-GP, arXiv:1704.00028): a second derivative through attention.

The critic attends causally with a learned slope per head. The penalty holds the size of its gradient by its input near 1,
so its own gradient by the weights is a derivative of a derivative. Each step compares the gradients of all weights with
those by an eager attention in fp64.

    pip install ./tools/python torch
    python tools/examples/gradient_penalty.py
"""

import copy
import sys
import warnings

import torch
from torch import nn

from attnc import CpuWarning
from attnc.torch import create_block_mask, flex_attention

B, H, L, D, CHANNELS, STEPS, PENALTY = 4, 2, 16, 8, 3, 8, 10

warnings.simplefilter("ignore", CpuWarning)
torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
print(f"training on {torch.cuda.get_device_name()}" if device == "cuda" else "no GPU here: the CPU reference computes")

mask = create_block_mask(lambda b, h, q, k: q >= k, None, None, L, L, device=device)


def attend(q, k, v, slopes):
    return flex_attention(q, k, v, lambda score, b, h, q, k: score + slopes[h] * (k - q), mask)


def definition(q, k, v, slopes):
    at = torch.arange(L, device=q.device)
    behind = at - at[:, None]
    scores = q @ k.mT / D**0.5 + slopes[:, None, None] * behind
    return torch.softmax(scores.masked_fill(behind > 0, -torch.inf), -1) @ v


class Critic(nn.Module):
    """A number for each sequence [B, L, CHANNELS]."""

    def __init__(self):
        super().__init__()
        self.into, self.qkv = nn.Linear(CHANNELS, H * D), nn.Linear(H * D, 3 * H * D)
        self.out = nn.Sequential(nn.Linear(H * D, 2 * H * D), nn.SiLU(), nn.Linear(2 * H * D, 1))
        self.slopes = nn.Parameter(torch.rand(H))

    def forward(self, x, attend):
        x = self.into(x)
        q, k, v = self.qkv(x).view(B, L, 3, H, D).permute(2, 0, 3, 1, 4)
        return self.out(x + attend(q, k, v, self.slopes).transpose(1, 2).flatten(2)).mean((1, 2))


def loss_of(critic, attend, real, fake, share):
    between = (share * real + (1 - share) * fake).requires_grad_()
    (slope,) = torch.autograd.grad(critic(between, attend).sum(), between, create_graph=True)
    penalty = (slope.flatten(1).norm(dim=1) - 1).square().mean()
    return critic(fake, attend).mean() - critic(real, attend).mean() + PENALTY * penalty, penalty


critic = Critic().to(device)
optimizer = torch.optim.Adam(critic.parameters(), lr=1e-2)
worst, penalties = 0.0, []
for step in range(STEPS):
    real, fake = torch.randn(2, B, L, CHANNELS, device=device).cumsum(2) / L**0.5 * torch.tensor([1.0, 0.5], device=device).view(2, 1, 1, 1)
    share = torch.rand(B, 1, 1, device=device)
    optimizer.zero_grad()
    loss, penalty = loss_of(critic, attend, real, fake, share)
    loss.backward()
    penalties.append(penalty.item())

    exact = copy.deepcopy(critic).double()
    right, _ = loss_of(exact, definition, *(x.double() for x in (real, fake, share)))
    expected = torch.autograd.grad(right, [*exact.parameters()], materialize_grads=True)
    scale = max(x.norm() for x in expected)
    for weight, gradient in zip(critic.parameters(), expected):
        worst = max(worst, float((weight.grad - gradient).norm() / scale))
    optimizer.step()

print(f"penalty {penalties[0]:.3f} to {penalties[-1]:.3f} in {STEPS} steps, largest relative error of a gradient {worst:.1e}")
sys.exit(0 if worst < 1e-3 and penalties[-1] < penalties[0] else "WRONG")
