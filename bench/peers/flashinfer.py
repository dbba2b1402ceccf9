"""FlashInfer, decoding over a cache in pages: kernels for CUDA cores, and those for tensor cores.

Keys that are contiguous for others lie in pages of 64 here, in order. plan(), which it calls once a step, is not timed.
"""

import importlib.util

import torch
import workloads

from . import paged, version_of

if not importlib.util.find_spec("flashinfer"):  # it is imported for the first case that decodes: that takes long
    raise ModuleNotFoundError("No module named 'flashinfer'")

NAME = "flashinfer"
PAGE = 64


def version():
    return version_of("flashinfer-python")


def serves(case):
    return case.kind == "decode" and case.dtype == "bf16" and case.variant in ("noop", "causal", "alibi", "softcap", "sliding_window")


def is_heads_last(case):
    return True


def ways(case, q, k, v):
    from flashinfer import BatchDecodeWithPagedKVCacheWrapper

    page = case.page or PAGE
    table, *pools = paged(page, k, v) if case.page else (
        torch.arange(case.batch * case.length // page, device=q.device, dtype=torch.int32).view(case.batch, -1),
        *(x.view(-1, page, *x.shape[2:]) for x in (k, v)),
    )  # fmt: skip
    ends = torch.arange(case.batch + 1, device=q.device, dtype=torch.int32) * table.shape[1]
    last = torch.full((case.batch,), page, device=q.device, dtype=torch.int32)
    options = {
        "pos_encoding_mode": "ALIBI" if case.variant == "alibi" else "NONE", "q_data_type": q.dtype, "kv_data_type": q.dtype,
        "window_left": case.window if case.variant == "sliding_window" else -1,
        "logits_soft_cap": workloads.CAP if case.variant == "softcap" else None,
    }  # fmt: skip

    def way(uses_tensor_cores):
        work = torch.zeros(256 << 20, device=q.device, dtype=torch.uint8)
        wrapper = BatchDecodeWithPagedKVCacheWrapper(work, use_tensor_cores=uses_tensor_cores, backend="fa2")
        wrapper.plan(ends, table.flatten(), last, case.heads, case.kv_heads, case.width, page, **options)
        query, cache = q[:, 0].contiguous(), tuple(pools)
        return lambda: wrapper.run(query, cache)[:, None]

    # Its tensor cores have modules of their own; those of bundle.py are without mods.
    found = {"CUDA cores": way(False)}
    if case.variant in ("noop", "causal") and case.heads != case.kv_heads:
        found["tensor cores"] = way(True)
    return found
