"""Packed documents: a query sees its own document, causally (Llama 3, https://arxiv.org/abs/2407.21783, §3.2).

`document_id` holds the document of each token. Queries and keys are the same tokens.
"""

from attnc import KV_LEN, i32

document_id: i32[KV_LEN]
CAUSAL = True


def mask_mod(b, h, q_idx, kv_idx):
    same = document_id[q_idx] == document_id[kv_idx]
    return same & (q_idx >= kv_idx) if CAUSAL else same
