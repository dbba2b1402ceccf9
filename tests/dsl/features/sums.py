"""Long sums, which become loops; lazy rows: elementwise, indexed, sliced, iterated, reduced along one axis."""
import torch

wide: f32[H, 40]
keys: bf16[KV_LEN, 40]
grid: f32[3, 20, 4]
counts: i32[B, 17]
flags: bool[24]
big: f32[3, 1000]


def score_mod(score, b, h, q_idx, kv_idx):
    a = torch.dot(wide[h], keys[kv_idx]) + (wide[h] @ wide[h - 1]) + (wide[h] * score).sum() + wide[h].mean()
    a = a + wide[h][3:35:2].sum() + wide[h][::-1][:20].sum(-1) + sum(wide[h] + 1) + sum(wide[h], q_idx)
    a = a + (wide[h] * wide[:, 3][h]).sum() + torch.sum((keys[kv_idx] - keys[b]) ** 2) + grid.sum() + grid[1].mean()
    a = a + grid.sum(dim=1)[2, q_idx % 4] + grid.sum(1)[0].amax() + grid.sum(0)[kv_idx % 20, 1] + grid[b].sum(dim=0).sum()
    a = a + (wide[h] * grid[0].sum(-1).sum()).sum() + (grid[0, :, 1] * wide[h][:20]).sum() + (grid[:, :, 0] * 2)[1, kv_idx % 20]
    a = a + counts[b].sum() + (counts[b] * q_idx).sum() % 13 + (wide[h] > score).sum() + flags.sum() + (counts[b] > 2).sum()
    twice = big * 2
    a = a + twice[b, q_idx] + twice[2][kv_idx + 900] + twice[h % 3, 7]
    rows = grid * 2 + 1
    a = a + rows[b][7, 2] + rows[b, kv_idx % 20][1:3].sum() + len(rows) + rows.shape[1] + rows[0][-1, 0]
    for row in grid[0, :2] - 1:
        a = a + row.sum() + row[h % 4]
    a = a + torch.norm(keys[kv_idx] - wide[h]) + grid[0].norm(dim=1)[q_idx % 20] + grid[b].norm(2, 0).amax()
    layer = (grid[0] * wide[h][:4]).sum(-1)
    return a + (layer * layer).sum() + layer[kv_idx % 20] + torch.relu(wide[h] - 1).norm() + torch.cos(wide[h]).sum() / 40


def mask_mod(b, h, q_idx, kv_idx):
    return ((counts[b] % 7 == kv_idx).sum() > 2) | (wide[h].sum() * keys[kv_idx].sum() > 0)
