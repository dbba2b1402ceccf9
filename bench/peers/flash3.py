"""FlashAttention-3, forward and over caches: the wheel fa3-fwd, which is built without windows."""

import fa3_fwd_interface
import torch
import workloads

from . import first, flat, paged, quantised, version_of

NAME = "fa3"


def version():
    return version_of("fa3-fwd")


def serves(case):
    return case.kind != "backward" and (case.variant in ("noop", "causal", "softcap") or case.is_packed)


def is_heads_last(case):
    return True


def attention(q, k, v, **options):
    return first(fa3_fwd_interface.flash_attn_func(q, k, v, **options))


def ways(case, q, k, v):
    if case.is_packed:
        rows, lengths = flat(case, q, k, v)
        return {"varlen": lambda: first(fa3_fwd_interface.flash_attn_varlen_func(*rows, **lengths, causal=True))[None]}
    options = {"softcap": workloads.CAP} if case.variant == "softcap" else {}
    options["causal"] = case.variant != "noop"
    if case.dtype == "e4m3":
        (q, q_scales), (k, k_scales), (v, v_scales) = quantised(*(x.transpose(1, 2) for x in (q, k, v)))
        q, k, v = (x.transpose(1, 2).contiguous() for x in (q, k, v))
        options |= {"q_descale": q_scales, "k_descale": k_scales, "v_descale": v_scales}
    if case.page:
        options["page_table"], k, v = paged(case.page, k, v)
    if case.kind == "decode":
        options["cache_seqlens"] = torch.full((case.batch,), case.length, device=q.device, dtype=torch.int32)
        return {"kvcache": lambda: first(fa3_fwd_interface.flash_attn_with_kvcache(q, k, v, **options))}
    return {"": lambda: attention(q, k, v, **options)}
