"""Chunked attention: a query sees its own chunk, causally, as the local layers of Llama 4 do
(https://ai.meta.com/blog/llama-4-multimodal-intelligence/).

q // CHUNK == kv // CHUNK and kv <= q
"""

CHUNK = 8192


def mask_mod(b, h, q_idx, kv_idx):
    return (q_idx // CHUNK == kv_idx // CHUNK) & (q_idx >= kv_idx)
