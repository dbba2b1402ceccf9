"""FlashMLA, latent attention over pages of 64: DeepSeek's package, or sgl-flash-mla, which keeps its kernel for Hopper."""

import flash_mla
import torch

from . import paged, version_of

NAME = "flashmla"
PAGE = 64
IS_SGLANG = hasattr(flash_mla, "has_legacy")


def version():
    return version_of("sgl-flash-mla" if IS_SGLANG else "flash_mla")


def serves(case):
    return case.is_latent and case.page == PAGE


def is_heads_last(case):
    return True


def ways(case, q, k, v):
    table, pool = paged(case.page, k)
    lengths = torch.full((case.batch,), case.length, device=q.device, dtype=torch.int32)
    plan = flash_mla.get_mla_metadata(lengths, case.heads, 1)  # the first call may fill it: it is not timed
    options = {"causal": True, **({"use_legacy": True} if IS_SGLANG else {})}
    return {"": lambda: flash_mla.flash_mla_with_kvcache(q, pool, table, lengths, case.width_v, *plan, **options)[0]}
