# Tensors as they are prepared: conversions, views and ranges of extents known at launch, until they are indexed.
import torch

keep: i32[B, 1, 1, KV_LEN]
slopes: f32[H]
ids: i64[KV_LEN]
grid: f32[4, 6]
n: int


def prepare(keep, slopes, ids, device="cuda"):
    mask = keep.to(torch.bool).to(device).squeeze(1)
    scaled = (slopes * 2 + 1).view(-1, 1).to(slopes.device)
    rows = torch.arange(KV_LEN, device=ids.device)
    shifted = (ids.long() * 3 + rows).contiguous().clone()
    table = torch.zeros(H, 5) + torch.arange(5)
    steps = rows[:, None] - rows[None, :]
    ones = ids.new_ones(KV_LEN).cuda()
    flat = grid.reshape(2, 12).permute(1, 0)
    wide = slopes.unsqueeze(0).expand(3, -1)
    assert ids.device == keep.device

    def score_mod(score, b, h, q_idx, kv_idx):
        x = scaled[h, 0] * score + table[h, q_idx % 5] + flat[kv_idx % 12, q_idx % 2] + wide[b, h]
        y = steps[q_idx, kv_idx] + shifted[kv_idx] - ones[q_idx] * n
        return x + y + torch.full((KV_LEN,), 2)[kv_idx] + grid.flatten()[h * 6 + b]

    def mask_mod(b, h, q_idx, kv_idx):
        near = torch.bucketize(q_idx - kv_idx, torch.tensor([-4, 0, 3]), right=True)
        return mask[b, 0, kv_idx] & (near != 2) | torch.isin(kv_idx, torch.tensor([3, 5, 7])) & torch.isin(q_idx, torch.tensor([4, 6]), invert=True)

    return score_mod, mask_mod


score_mod, mask_mod = prepare(keep, slopes, ids)
