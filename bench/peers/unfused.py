"""Attention by two products of PyTorch with the weights in memory between them, compiled or not: forward."""

import torch
import workloads

NAME = "unfused"


def version():
    return f"torch {torch.__version__}"


def serves(case):
    return case.kind == "forward" and case.variant in ("noop", "causal") and case.length <= workloads.SHORT and case.dtype != "e4m3"


def is_heads_last(case):
    return False


def ways(case, q, k, v):
    group, dead = case.heads // case.kv_heads, None
    if case.variant == "causal":
        dead = torch.ones(case.length, case.length, device=q.device, dtype=torch.bool).triu(1)

    def call():
        score = q @ k.repeat_interleave(group, 1).mT * case.width**-0.5 if group > 1 else q @ k.mT * case.width**-0.5
        score = score if dead is None else score.masked_fill(dead, -torch.inf)
        return score.softmax(-1) @ (v.repeat_interleave(group, 1) if group > 1 else v)

    torch._dynamo.reset()
    options = {"pattern_matcher": False}  # it would find attention here, and call SDPA
    return {"": call, "compiled": torch.compile(call, dynamic=False, options=options)}
