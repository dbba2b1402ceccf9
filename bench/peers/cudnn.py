"""cuDNN in PyTorch's scaled_dot_product_attention."""

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

NAME = "sdpa_cudnn"


def version():
    return f"cuDNN {torch.backends.cudnn.version()}"


def serves(case):
    return case.variant in ("noop", "causal") and case.dtype != "e4m3" and not case.page


def is_heads_last(case):
    return False


def ways(case, q, k, v):
    is_causal = case.variant == "causal" and case.kind != "decode"  # whose query would be the first

    def call():
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            return scaled_dot_product_attention(q, k, v, is_causal=is_causal, enable_gqa=case.heads != case.kv_heads)

    return {"": call}
