"""vLLM's FlashAttention-3, forward and over caches: its library alone, so that the rest of vLLM is not imported. It has windows and
latent attention, and adds up products of e4m3 on two levels. A plan of a decoding step, as vLLM makes it, is not timed."""

import functools

import torch
import workloads

from . import flat, load_of_vllm, paged, quantised, version_of

load_of_vllm("vllm_flash_attn/_vllm_fa3_C.abi3.so")

NAME = "fa3_vllm"
VARIANTS = ("noop", "causal", "softcap", "sliding_window", "latent")
# As vLLM calls it. It chooses splits itself if they are 0; all else is None.
OPTIONS = {
    "is_causal": False, "window_size_left": -1, "window_size_right": -1, "softcap": 0.0, "is_rotary_interleaved": True,
    "num_splits": 0, "sm_margin": 0, "cp_world_size": 1, "cp_rank": 0,
}  # fmt: skip


def version():
    return version_of("vllm")


def serves(case):
    return case.kind != "backward" and (case.variant in VARIANTS or case.is_packed)


def is_heads_last(case):
    return True


def bound(name, **given):
    """Returns the call of an operation, whose arguments are in OPTIONS if they are not given, or None."""
    operation = getattr(torch.ops._vllm_fa3_C, name).default
    arguments = [{**OPTIONS, **given}.get(argument.name) for argument in operation._schema.arguments]
    return lambda: operation(*arguments)


def forward(q, k, v, **options):
    """Returns the call, whose out is [B, L, H, D], or [ROWS, H, D] if `cu_seqlens_q` is given."""
    call = bound("fwd", q=q, k=k, v=v, **{"softmax_scale": q.shape[-1] ** -0.5, **options})
    return lambda: call()[0]


def plan(case, q, v, options):
    """Returns how CTAs share the keys of a decoding step."""
    sizes = {
        "batch_size": case.batch, "max_seqlen_q": 1, "max_seqlen_k": case.length, "num_heads": case.heads, "num_heads_k": case.kv_heads,
        "headdim": q.shape[-1], "headdim_v": v.shape[-1], "qkv_dtype": q.dtype, "page_size": case.page or None, "max_seqlen_k_new": 0,
        "has_softcap": case.variant == "softcap",
    }  # fmt: skip
    return bound("get_scheduler_metadata", **options, **sizes)()


def attention(q, k, v, **options):
    return forward(q, k, v, **options)()


def ways(case, q, k, v):
    if case.is_packed:
        rows, lengths = flat(case, q, k, v)
        call = forward(*rows, **lengths, is_causal=True)
        return {"varlen": lambda: call()[None]}
    options = {"softcap": workloads.CAP} if case.variant == "softcap" else {}
    if case.variant == "sliding_window":
        options |= {"window_size_left": case.window, "window_size_right": 0}
    else:
        options["is_causal"] = case.variant != "noop"
    if case.dtype == "e4m3":
        (q, q_scales), (k, k_scales), (v, v_scales) = quantised(*(x.transpose(1, 2) for x in (q, k, v)))
        q, k, v = (x.transpose(1, 2).contiguous() for x in (q, k, v))
        options |= {"q_descale": q_scales, "k_descale": k_scales, "v_descale": v_scales}
    if case.kind == "decode":
        options["seqused_k"] = torch.full((case.batch,), case.length, device=q.device, dtype=torch.int32)
    if case.is_latent:  # columns of positions are an operand of their own
        options["page_table"], pool = paged(case.page, k)
        v, k = pool.split((case.width_v, case.width - case.width_v), -1)
        options["q_v"], q = (x.contiguous() for x in q.split((case.width_v, case.width - case.width_v), -1))
        options["softmax_scale"] = case.width**-0.5
    elif case.page:
        options["page_table"], k, v = paged(case.page, k, v)
    found = {"": forward(q, k, v, **options)}
    if case.kind == "decode":
        planned = functools.cache(lambda: forward(q, k, v, **options, scheduler_metadata=plan(case, q, v, options)))
        found["planned"] = lambda: planned()()
    return found
