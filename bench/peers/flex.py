"""FlexAttention, compiled. Packed documents are one long sequence under a document mask."""

import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

NAME = "flex"


def version():
    return f"torch {torch.__version__}"


def serves(case):
    return case.dtype != "e4m3" and not case.page


def is_heads_last(case):
    return False


def ways(case, q, k, v):
    torch._dynamo.reset()  # a limit on what it compiled for one function would end in eager mode
    score_mod, mask_mod = case.mods(q.device)
    lengths = q.shape[2], k.shape[2]
    mask = mask_mod and create_block_mask(mask_mod, None, None, *lengths, device=q.device)
    compiled, is_gqa = torch.compile(flex_attention, dynamic=False), case.heads != case.kv_heads
    return {"": lambda: compiled(q, k, v, score_mod=score_mod, block_mask=mask, enable_gqa=is_gqa)}
