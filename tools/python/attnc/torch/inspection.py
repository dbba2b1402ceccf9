"""Shows what attnc makes of FlexAttention's mods: the kernel of a call, and pictures of masks."""

import typing

import torch
from torch.nn.attention import flex_attention as flex

from ..mod import Mod
from .kernels import check_dtype
from .translation import DTYPE_NAMES, translate


def _translated(score_mod, mask_mod, device, problem):
    """Returns (Mod, captures) of mods for operands of these sizes, with captured tensors on the CPU."""
    text, tensors, scalars = translate(score_mod, mask_mod, device=device, problem=problem).given()
    captures = {name: tensor.detach().cpu() for name, tensor in tensors.items()}
    name = getattr(score_mod or mask_mod, "__name__", "")
    if name.isidentifier() and not text.startswith("source "):
        text = f'source "{name}"\n{text}'
    return Mod.parse_ir(text, name="<torch>"), {**captures, **scalars}, tensors


def explain(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
    score_mod: typing.Callable[..., torch.Tensor] | None = None, block_mask: flex.BlockMask | None = None, *,
    training: bool | None = None, arch: str | None = None,
) -> dict[str, typing.Any]:  # fmt: skip
    """Returns what the kernel of flex_attention() for these operands is, why it was chosen, and what it costs: the
    object that `attnc explain --json` prints.

    `training`: whether it is about the backward kernel; default: if an operand or a captured tensor requires a gradient.
    `arch` is a GPU architecture such as "sm_90a"; default: that of the GPU. Only the operands' sizes and dtypes matter,
    so this needs no GPU. Lists of blocks of a BlockMask count as a part of its mask_mod.

    Raises UntranslatableError, RunError and ArgumentError, and ValueError for other dtypes than flex_attention() takes."""
    from .block_mask import mask_mod_of

    for name, tensor in (("query", query), ("key", key), ("value", value)):
        check_dtype(name, tensor)
    batch, heads, q_len, head_dim = query.shape
    problem = batch, heads, key.shape[1], q_len, key.shape[2]
    mask_mod = None if block_mask is None else mask_mod_of(block_mask, q_len, key.shape[2], may_walk=False)[0]
    mod, captures, tensors = _translated(score_mod, mask_mod, query.device, problem)
    gradients = [name for name, tensor in tensors.items() if tensor.requires_grad and tensor.is_floating_point()]
    if training is None:
        training = bool(gradients) or any(x.requires_grad for x in (query, key, value))
    return mod.explain(
        problem, captures=captures, dtype=DTYPE_NAMES[query.dtype], head_dim=head_dim, head_dim_v=value.shape[-1],
        arch=arch, training=training, gradients=gradients if training else (),
    )  # fmt: skip


def mask_svg(mask, mask_mod, **options):
    """Returns the picture of a BlockMask whose live scores mask_mod decides, as for Mod.mask_svg()."""
    batch, heads, q_len, kv_len = mask.shape
    problem = batch, heads, heads, q_len, kv_len
    mod, captures, _ = _translated(None, mask_mod, mask.device, problem)
    if all(size in (64, 128, 256) for size in mask.BLOCK_SIZE):
        options.setdefault("block", tuple(mask.BLOCK_SIZE))
    return mod.mask_svg(problem, captures=captures, **options)
