"""FlashMLA, latent attention over pages of 64: DeepSeek's package, or sgl-flash-mla, which keeps its kernel for Hopper; and vLLM's
build of it. The first call makes a plan, as a server does once a step: it is not timed."""

import functools

import torch

from . import load_of_vllm, paged, version_of

try:
    import flash_mla
except (ImportError, OSError):
    flash_mla = None
try:
    load_of_vllm("_flashmla_C.abi3.so")
    IS_IN_VLLM = True
except (ImportError, OSError):
    if not flash_mla:
        raise
    IS_IN_VLLM = False

NAME = "flashmla"
PAGE = 64
IS_SGLANG = hasattr(flash_mla, "has_legacy")


def version():
    package = ["sgl-flash-mla" if IS_SGLANG else "flash_mla"] if flash_mla else []
    return ", ".join(map(version_of, [*package, *(["vllm"] if IS_IN_VLLM else [])]))


def serves(case):
    return case.is_latent and case.page == PAGE


def is_heads_last(case):
    return True


def ways(case, q, k, v):
    table, pool = paged(case.page, k)
    lengths = torch.full((case.batch,), case.length, device=q.device, dtype=torch.int32)
    found = {}
    if flash_mla:
        plan = flash_mla.get_mla_metadata(lengths, case.heads, 1)
        options = {"causal": True, **({"use_legacy": True} if IS_SGLANG else {})}
        found["package"] = lambda: flash_mla.flash_mla_with_kvcache(q, pool, table, lengths, case.width_v, *plan, **options)[0]
    if IS_IN_VLLM:
        decode = functools.partial(torch.ops._flashmla_C.dense_decode_fwd, q, pool, case.width_v, lengths, table, case.width**-0.5, True)
        planned = functools.cache(lambda: decode(None, None, None)[2:])
        found["vllm"] = lambda: decode(*planned(), None)[0]
    return found
