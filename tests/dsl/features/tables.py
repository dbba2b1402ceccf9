"""Small tables written in the mod, torch.tensor, stack, arange, list and tuple work."""
import torch

SLOPES = (0.5, 0.25, 0.125, 0.0625)


def score_mod(score, b, h, q_idx, kv_idx):
    table = torch.tensor(SLOPES)
    grid = torch.tensor([[1, 2, 3], [4, 5, 6]])
    x = table[h] + grid[b, kv_idx % 3] + grid[1].sum() + grid.sum(dim=0)[2] + grid[b][q_idx % 3]
    x = x + (torch.arange(4) == h).sum() + (torch.arange(1, 9, 2) * table).sum() + table[-1] + table[h - 4]
    x = x + torch.stack([score, score * 2, score + 1]).amax() + table[1:].sum() + len(table) + torch.tensor([h, b]).sum()
    pair = (q_idx, kv_idx) + (1,)
    return x + pair[0] - pair[1] + pair[2] + [1, 2, 3][1] + len((0,) * 3)


def mask_mod(b, h, q_idx, kv_idx):
    return (torch.tensor([1, 5, 9, 12]) == kv_idx).any() | (q_idx in [2, 3]) | (kv_idx in range(4, 9))
