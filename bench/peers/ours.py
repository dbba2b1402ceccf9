"""attnc: attnc.torch's flex_attention, and packed documents as a ragged batch."""

import torch

import attnc
import attnc.torch.flash
from attnc.torch import create_block_mask, flex_attention

from . import paged, quantised

NAME = "attnc"
TEXTS = {"noop": "score", "causal": "q_idx >= kv_idx", "latent": "q_idx >= kv_idx"}


def version():
    return f"attnc {attnc.version()}"


def serves(case):
    return case.dtype != "e4m3" or case.variant in TEXTS and case.kind == "forward"


def is_heads_last(case):
    return case.is_packed


def ways(case, q, k, v):
    if case.is_packed:
        return {"ragged batch": packed(case, q, k, v)}
    if case.dtype == "e4m3":
        (q, q_scales), (k, k_scales), (v, v_scales) = quantised(q, k, v)
        mod, scales = attnc.Mod.parse(TEXTS[case.variant]), {"q_scales": q_scales, "k_scales": k_scales, "v_scales": v_scales}
        return {"": lambda: attnc.attention(mod, q, k, v, **scales)}
    if case.page:
        return {"": of_cache(case, q, k, v)}
    score_mod, mask_mod = case.mods(q.device)
    mask = mask_mod and create_block_mask(mask_mod, None, None, case.q_length, case.length, device=q.device)
    return {"": lambda: flex_attention(q, k, v, score_mod, mask, enable_gqa=True)}


def of_cache(case, q, k, v):
    """Returns the call over a cache, in pages or contiguous, by one mod: the last query is at the last key."""
    mod, lengths = attnc.Mod.parse(TEXTS[case.variant]), torch.full((case.batch,), case.length, device=q.device)
    given = {"kv_lengths": lengths.int()}
    if case.page:
        given["page_table"], *pools = paged(case.page, *(x.transpose(1, 2) for x in ((k,) if case.is_latent else (k, v))))
        k, *rest = (x.transpose(1, 2).contiguous() for x in pools)
        v = rest[0] if rest else k[..., : case.width_v]
    return lambda: attnc.attention(mod, q, k, v, **given)


def packed(case, q, k, v):
    ends, longest = case.cu_seqlens(q.device), max(case.documents())
    if case.kind == "forward":
        mod, views = attnc.Mod.parse("q_idx >= kv_idx"), [x.transpose(1, 2) for x in (q, k, v)]
        lengths = {"cu_seqlens_q": ends, "cu_seqlens_kv": ends, "max_q_len": longest, "max_kv_len": longest}
        return lambda: attnc.attention(mod, *views, **lengths).transpose(1, 2)
    from torch.nn.attention.varlen import varlen_attn

    attnc.torch.flash.register()
    torch.nn.attention.activate_flash_attention_impl("attnc")  # flash2.py restores PyTorch's
    rows = [x[0] for x in (q, k, v)]
    return lambda: varlen_attn(*rows, ends, ends, longest, longest, window_size=(-1, 0))[None]
