"""Text and images in one sequence: text is causal, and the patches of an image see each other (Transfusion, Zhou et al.
2024, https://arxiv.org/abs/2408.11039, §3.2).

kv <= q or (image[q] == image[kv] and image[q] > 0). `image` is 0 for text.
"""

from attnc import KV_LEN, i32

image: i32[KV_LEN]


def mask_mod(b, h, q_idx, kv_idx):
    same_image = (image[q_idx] == image[kv_idx]) & (image[q_idx] > 0)
    return (q_idx >= kv_idx) | same_image
