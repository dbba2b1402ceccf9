"""FlashAttention-2: the package flash-attn, or else the kernels in PyTorch's scaled_dot_product_attention."""

import torch
import workloads
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from . import first, flat, version_of

try:
    from flash_attn import flash_attn_func, flash_attn_varlen_func, flash_attn_with_kvcache
except ImportError:
    flash_attn_func = None

NAME = "fa2"


def version():
    return version_of("flash_attn") if flash_attn_func else f"torch {torch.__version__}"


def serves(case):
    known = ("noop", "causal", "sliding_window", "softcap", "alibi") if flash_attn_func else ("noop", "causal")
    if case.dtype == "e4m3" or case.page:
        return False
    return case.width == case.width_v and (case.variant in known or bool(flash_attn_func) and case.is_packed)


def is_heads_last(case):
    return bool(flash_attn_func)


def ways(case, q, k, v):
    is_causal = case.variant != "noop"
    if not flash_attn_func:
        if torch.nn.attention.current_flash_attention_impl():
            torch.nn.attention.restore_flash_attention_impl()

        is_causal = is_causal and case.kind != "decode"  # whose query would be the first

        def call():
            with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
                return scaled_dot_product_attention(q, k, v, is_causal=is_causal, enable_gqa=case.heads != case.kv_heads)

        return {"": call}
    if case.is_packed:
        rows, lengths = flat(case, q, k, v)
        return {"varlen": lambda: first(flash_attn_varlen_func(*rows, **lengths, causal=True))[None]}
    options = {}
    if case.variant == "sliding_window":
        options["window_size"] = (case.window, 0)
    elif case.variant == "softcap":
        options["softcap"] = workloads.CAP
    elif case.variant == "alibi":
        options["alibi_slopes"] = workloads.alibi_slopes(case.heads, q.device)
    if case.kind == "decode":
        return {"kvcache": lambda: flash_attn_with_kvcache(q, k, v, causal=is_causal, **options)}
    return {"": lambda: first(flash_attn_func(q, k, v, causal=is_causal, **options))}
