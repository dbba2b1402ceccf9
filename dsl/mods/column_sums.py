"""Column sums of weights: how much all queries attend to a key. Caches of keys and values evict by them (H2O, Zhang et al.
2023, https://arxiv.org/abs/2306.14048, §4; of the last queries: SnapKV, Li et al. 2024, https://arxiv.org/abs/2404.14469).

sum over q of softmax(score)[q, kv], an output
"""

from attnc import B, H, KV_LEN, f32, reduce_sum

WINDOW = 0  # last queries that count; 0: all


def mask_mod(b, h, q_idx, kv_idx):
    return q_idx >= kv_idx


def weight(prob, score, b, h, q_idx, kv_idx):
    return prob if WINDOW == 0 else prob * (q_idx >= KV_LEN - WINDOW)


column_sums: f32[B, H, KV_LEN] = reduce_sum(weight)
