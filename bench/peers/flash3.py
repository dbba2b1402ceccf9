"""FlashAttention-3, forward: the wheel fa3-fwd, which is built without windows."""

import fa3_fwd_interface
import workloads

from . import first, flat, version_of

NAME = "fa3"


def version():
    return version_of("fa3-fwd")


def serves(case):
    return case.kind == "forward" and (case.variant in ("noop", "causal", "softcap") or case.is_packed)


def is_heads_last(case):
    return True


def ways(case, q, k, v):
    if case.is_packed:
        rows, lengths = flat(case, q, k, v)
        return {"varlen": lambda: first(fa3_fwd_interface.flash_attn_varlen_func(*rows, **lengths, causal=True))[None]}
    options = {"softcap": workloads.CAP} if case.variant == "softcap" else {}
    return {"": lambda: first(fa3_fwd_interface.flash_attn_func(q, k, v, causal=case.variant != "noop", **options))}
