"""cudnn.flex_attention of NVIDIA's cudnn-frontend: masks as intervals of keys. It has no score mods."""

import itertools

import torch
import workloads
from cudnn.flex_attention import create_mask_plan, flex_attn_func

from . import flat, version_of

NAME = "cudnn_flex"


def version():
    return version_of("nvidia-cudnn-frontend")


def serves(case):
    return case.variant not in ("alibi", "softcap") and case.kind != "decode" and case.dtype != "e4m3"


def is_heads_last(case):
    return True


def intervals(case, device):
    """Returns i32 [1, bounds, all rows]: row q sees keys of [0, F0), [F1, F2), ..."""
    if case.is_packed:
        return torch.cat([torch.arange(1, n + 1, dtype=torch.int32, device=device) for n in case.documents()])[None, None]
    q = torch.arange(case.length, device=device, dtype=torch.int32)
    zero = torch.zeros_like(q)
    if case.variant == "noop":
        bounds = [torch.full_like(q, case.length)]
    elif case.variant == "causal":
        bounds = [q + 1]
    elif case.variant == "prefix_lm":
        bounds = [(q + 1).clamp(min=workloads.PREFIX)]
    elif case.variant == "sliding_window":
        bounds = [zero, (q - case.window).clamp(min=0), q + 1]
    else:
        lengths = case.documents()
        starts = torch.tensor([0, *itertools.accumulate(lengths[:-1])], device=device, dtype=torch.int32)
        bounds = [zero, torch.repeat_interleave(starts, torch.tensor(lengths, device=device)), q + 1]
    return torch.stack(bounds).to(torch.int32).repeat(1, case.batch)[None].contiguous()


def ways(case, q, k, v):
    operands, lengths = flat(case, q, k, v) if case.is_packed else ([q, k, v], {})
    plan = create_mask_plan(intervals(case, q.device), *operands, build_backward=case.kind == "backward", **lengths)
    shape = *q.shape[:3], case.width_v
    return {"": lambda: flex_attn_func(*operands, mask_plan=plan).view(shape)}
