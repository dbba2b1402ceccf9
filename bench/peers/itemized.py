"""PyTorch's scaled_dot_product_attention with an itemized mask: a tensor of all pairs, made beforehand."""

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

NAME = "sdpa_itemized"
BACKENDS = {"mem_efficient": SDPBackend.EFFICIENT_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}


def version():
    return f"torch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}"


def serves(case):
    return case.variant not in ("noop", "softcap") and case.dtype != "e4m3" and not case.is_packed and not case.page


def is_heads_last(case):
    return False


def mask_of(case, q):
    """Returns what is added to the scores [1, 1 or H, Q_LEN, KV_LEN], in the dtype of q."""
    score_mod, mask_mod = case.mods(q.device)
    row = torch.arange(case.q_length, device=q.device)[:, None]
    column = torch.arange(case.length, device=q.device)
    bias = torch.zeros((), device=q.device)
    if score_mod:
        bias = score_mod(bias, 0, torch.arange(case.heads, device=q.device)[:, None, None], row, column)
    bias = bias.to(q.dtype).expand(-1 if bias.dim() else 1, case.q_length, case.length)
    return torch.where(mask_mod(0, 0, row, column), bias, -torch.inf)[None].expand(len(q), -1, -1, -1)


def ways(case, q, k, v):
    mask = mask_of(case, q)
    group = case.heads // case.kv_heads

    def by(backend):
        # The memory-efficient kernels take no groups of heads: k and v are repeated for them, and the time counts.
        is_repeated = group > 1 and backend == SDPBackend.EFFICIENT_ATTENTION
        spread = (lambda x: x.repeat_interleave(group, 1)) if is_repeated else (lambda x: x)
        enable_gqa = group > 1 and not is_repeated

        def call():
            with sdpa_kernel(backend):
                return scaled_dot_product_attention(q, spread(k), spread(v), attn_mask=mask, enable_gqa=enable_gqa)

        return call

    return {how: by(backend) for how, backend in BACKENDS.items()}
