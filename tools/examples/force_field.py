"""Trains a force field: an energy of positions through attention, whose forces are fitted.

score_mod reads the positions of atoms, which are captured, and scores fall with the squared distance; mask_mod cuts off.
Forces are the energy's gradient by positions, so their loss needs second derivatives, by captures as well. Each step
compares the gradients of all weights with those by an eager attention in fp64.

    pip install ./tools/python torch
    python tools/examples/force_field.py
"""

import copy
import sys
import warnings

import torch
from torch import nn

from attnc import CpuWarning
from attnc.torch import create_block_mask, flex_attention

B, H, ATOMS, D, CUTOFF, STEPS = 2, 2, 20, 8, 3.0, 20

warnings.simplefilter("ignore", CpuWarning)
torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
print(f"training on {torch.cuda.get_device_name()}" if device == "cuda" else "no GPU here: the CPU reference computes")


def attend(q, k, v, positions, widths):
    def squared(b, i, j):
        steps = [positions[b, i, axis] - positions[b, j, axis] for axis in range(3)]
        return steps[0] * steps[0] + steps[1] * steps[1] + steps[2] * steps[2]

    mask = create_block_mask(lambda b, h, q, k: squared(b, q, k) < CUTOFF**2, B, None, ATOMS, ATOMS, device=device)
    return flex_attention(q, k, v, lambda score, b, h, q, k: score - widths[h] * squared(b, q, k), mask)


def definition(q, k, v, positions, widths):
    squared = (positions[:, None, :, None] - positions[:, None, None]).square().sum(-1)
    scores = q @ k.mT / D**0.5 - widths[:, None, None] * squared
    return torch.softmax(scores.masked_fill(squared >= CUTOFF**2, -torch.inf), -1) @ v


class ForceField(nn.Module):
    """Forces [B, ATOMS, 3] of atoms of two kinds."""

    def __init__(self):
        super().__init__()
        self.of_kinds, self.qkv = nn.Embedding(2, H * D), nn.Linear(H * D, 3 * H * D)
        self.energy = nn.Sequential(nn.Linear(H * D, 2 * H * D), nn.SiLU(), nn.Linear(2 * H * D, 1))
        self.widths = nn.Parameter(torch.rand(H))

    def forward(self, positions, kinds, attend):
        x = self.of_kinds(kinds)
        q, k, v = self.qkv(x).view(B, ATOMS, 3, H, D).permute(2, 0, 3, 1, 4)
        x = x + attend(q, k, v, positions, self.widths).transpose(1, 2).flatten(2)
        (slope,) = torch.autograd.grad(self.energy(x).sum(), positions, create_graph=True)
        return -slope


positions = (1.5 * torch.randn(B, ATOMS, 3, device=device)).requires_grad_()
kinds = torch.randint(2, (B, ATOMS), device=device)
# The forces to be learned: those of pairs that repel or attract each other, as their kinds are equal or not.
signs = torch.where(kinds[:, None] == kinds[:, :, None], 1.0, -1.0)[..., None]
steps = (positions[:, :, None] - positions[:, None]).detach()
wanted = (signs * steps * torch.exp(-steps.square().sum(-1, keepdim=True) / 2)).sum(2)


def loss_of(field, attend, positions, wanted):
    return (field(positions, kinds, attend) - wanted).square().mean()


field = ForceField().to(device)
optimizer = torch.optim.Adam(field.parameters(), lr=3e-2)
worst, losses = 0.0, []
for step in range(STEPS):
    optimizer.zero_grad()
    loss = loss_of(field, attend, positions, wanted)
    loss.backward(inputs=[*field.parameters()])
    losses.append(loss.item())

    exact = copy.deepcopy(field).double()
    right = loss_of(exact, definition, positions.detach().double().requires_grad_(), wanted.double())
    expected = torch.autograd.grad(right, [*exact.parameters()], materialize_grads=True)
    scale = max(x.norm() for x in expected)
    for weight, gradient in zip(field.parameters(), expected):
        if weight.grad is not None:
            worst = max(worst, float((weight.grad - gradient).norm() / scale))
    optimizer.step()

print(f"loss {losses[0]:.3f} to {losses[-1]:.3f} in {STEPS} steps, largest relative error of a gradient {worst:.1e}")
sys.exit(0 if worst < 1e-3 and losses[-1] < losses[0] / 2 else "WRONG")
