"""The memory-efficient kernels in PyTorch's scaled_dot_product_attention."""

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

NAME = "sdpa_efficient"


def version():
    return f"torch {torch.__version__}"


def serves(case):
    return case.variant in ("noop", "causal") and case.heads == case.kv_heads and case.dtype != "e4m3" and not case.page


def is_heads_last(case):
    return False


def ways(case, q, k, v):
    is_causal = case.variant == "causal" and case.kind != "decode"  # whose query would be the first

    def call():
        with sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION):
            return scaled_dot_product_attention(q, k, v, is_causal=is_causal)

    return {"": call}
