"""FlashAttention-4 (CuTe DSL): options of its own where it has them, else mods, and blocks of FlexAttention's block masks."""

import cutlass
import workloads
from cutlass import cute
from flash_attn.cute import utils
from flash_attn.cute.block_sparsity import BlockSparseTensorsTorch
from flash_attn.cute.interface import flash_attn_func, flash_attn_varlen_func
from torch.nn.attention.flex_attention import create_block_mask

from . import first, flat, version_of

NAME = "fa4"


# Names of parameters are part of its interface.
def alibi_mod(heads):
    @cute.jit
    def alibi(score, batch_idx, head_idx, q_idx, kv_idx, seqlen_info, aux_tensors):
        slope = cute.math.exp2((head_idx + 1).to(cutlass.Float32) * (-8.0 / heads), fastmath=True)
        return score + slope * (kv_idx - q_idx).to(cutlass.Float32)

    return alibi


@cute.jit
def identity_bwd(grad, score, batch_idx, head_idx, q_idx, kv_idx, seqlen_info, aux_tensors):
    return grad


def softcap_mods(cap):
    """Returns what softcap= builds, and its derivative, with a multiplication: its division is a call."""
    inverse = 1.0 / cap

    @cute.jit
    def softcap(score, batch_idx, head_idx, q_idx, kv_idx, seqlen_info, aux_tensors):
        return cap * cute.math.tanh(score * inverse, fastmath=True)

    @cute.jit
    def softcap_bwd(grad, score, batch_idx, head_idx, q_idx, kv_idx, seqlen_info, aux_tensors):
        t = cute.math.tanh(score * inverse, fastmath=True)
        return grad * (1.0 - t * t)

    return softcap, softcap_bwd


def prefix_mod(prefix):
    @cute.jit
    def prefix_lm(batch_idx, head_idx, q_idx, kv_idx, seqlen_info, aux_tensors):
        return (kv_idx < prefix) | (q_idx >= kv_idx)

    return prefix_lm


@cute.jit
def document_mod(batch_idx, head_idx, q_idx, kv_idx, seqlen_info, aux_tensors):
    ids = aux_tensors[0]
    same = ids[q_idx[0]] == ids[kv_idx[0]]
    return utils.scalar_to_ssa(same, cutlass.Boolean) & (q_idx >= kv_idx)


def version():
    return version_of("flash-attn-4")


def serves(case):
    return case.kind != "decode" and case.dtype != "e4m3"


def is_heads_last(case):
    return True


def sparse(case, blocks, device, is_transposed):
    """Returns its lists of blocks, out of FlexAttention's: they have one format."""
    mask = create_block_mask(case.mods(device)[1], None, None, case.length, case.length, device=device, BLOCK_SIZE=blocks)
    prefix = "q" if is_transposed else "kv"
    lists = [f"{prefix}_num_blocks", f"{prefix}_indices", f"full_{prefix}_num_blocks", f"full_{prefix}_indices"]
    return BlockSparseTensorsTorch(*(getattr(mask, name).contiguous() for name in lists), block_size=blocks)


def options_of(case, device):
    """Returns {how: keyword arguments} of a case that is not packed."""
    is_backward, is_causal = case.kind == "backward", case.variant != "noop"
    if case.variant in ("noop", "causal"):
        return {"": {"causal": is_causal}}
    if case.variant == "sliding_window":
        return {"": {"window_size": (case.window, 0)}}
    if case.variant == "alibi":
        derivative = {"score_mod_bwd": identity_bwd} if is_backward else {}
        return {"score_mod": {"causal": True, "score_mod": alibi_mod(case.heads), **derivative}}
    if case.variant == "softcap":
        mod, mod_bwd = softcap_mods(workloads.CAP)
        derivative = {"score_mod_bwd": mod_bwd} if is_backward else {}
        return {
            "softcap=": {"causal": True, "softcap": workloads.CAP},
            "score_mod": {"causal": True, "score_mod": mod, **derivative},
        }
    found = {}
    for blocks in [(128, 128), (192, 128)] if case.width <= 64 and not is_backward else [(128, 128)]:
        options = {"block_sparse_tensors": sparse(case, blocks, device, False)}
        options["mask_mod"] = document_mod if case.variant == "document" else prefix_mod(workloads.PREFIX)
        if case.variant == "document":
            ids = case.document_ids(device)
            ids.__leading_dim__, ids.__assumed_align__ = 0, 4
            options["aux_tensors"] = [ids]
        if is_backward:
            options["block_sparse_tensors_bwd"] = sparse(case, blocks, device, True)
        found[f"blocks {blocks[0]}x{blocks[1]}"] = options
    return found


def ways(case, q, k, v):
    if case.is_packed:
        rows, lengths = flat(case, q, k, v)
        return {"varlen": lambda: first(flash_attn_varlen_func(*rows, **lengths, causal=True))[None]}
    call = lambda options: lambda: first(flash_attn_func(q, k, v, **options))
    return {how: call(options) for how, options in options_of(case, q.device).items()}
