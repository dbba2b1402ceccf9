"""Gathers: chained, indirect, partial, transposed, from the end, 0-d."""
import torch

doc: i32[KV_LEN]
offsets: i64[N]
table: f32[H, 3, N]
row: bf16[N, 4]
flags: bool[Q_LEN]
small: u8[2, 3]
temperature: f32
wide: f16[2, H, N, 3]


def score_mod(score, b, h, q_idx, kv_idx):
    a = table[h, 1, doc[q_idx]] + table[h][2][doc[kv_idx]] + table[h, q_idx % 3][doc[q_idx] % 7]
    a = a + offsets[doc[kv_idx]] + row[doc[q_idx]][0] + row[doc[q_idx], -1] + row[offsets[doc[kv_idx]]][2]
    a = a + row[kv_idx % 7].sum(-1) + row[3].sum(dim=-1) + torch.dot(row[h], row[h + 1]) + (row[h] @ row[2])
    a = a + (row[h] * row[b] + 1).amax() + row[h].min() + row[h][1:3].sum() + row[h][::2].mean() + (row[h] > 0).sum()
    a = a + temperature * 2 + temperature[()] + temperature.item() + table.transpose(0, 2)[doc[kv_idx], 1, h]
    a = a + table[:, 1, 2][h] + table[..., 3][h, 0] + row.T[1, h] + wide[b, h, doc[q_idx]].sum() + wide[b][h][1][-2]
    a = a + doc[q_idx - kv_idx] + offsets[h - 4] + table.shape[1] + len(doc) + table.size(0) + row.shape[-1] + N
    return score * a + small[b].sum() + small.sum(dim=0)[1] + small[b, -1] + (q_idx * small[b]).sum()


def mask_mod(b, h, q_idx, kv_idx):
    return flags[q_idx] & (doc[q_idx] == doc[kv_idx]) | (small[b] == doc[kv_idx]).any(dim=-1) | (row[h] > -1).all()
