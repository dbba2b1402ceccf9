"""Cross-attention from text to images: a token sees the last image before it (Flamingo, Alayrac et al. 2022,
https://arxiv.org/abs/2204.14198, §2.3). Tokens before the first image see nothing, and their output is 0.

kv // TOKENS == last_image[b, q]. `last_image` is -1 before the first image.
"""

from attnc import B, Q_LEN, i32

TOKENS = 64  # of an image
last_image: i32[B, Q_LEN]


def mask_mod(b, h, q_idx, kv_idx):
    return kv_idx // TOKENS == last_image[b, q_idx]
