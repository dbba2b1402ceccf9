"""Shows what attnc makes of FlexAttention's mods: the kernel of a call."""

import typing

import torch
from torch.nn.attention import flex_attention as flex

from ..errors import ArgumentError
from ..launch import Launch
from ..prob_mods import in_order
from .flex import FlexKernelOptions, check_reduced, settled, with_prob
from .fp8 import parts_of
from .kernels import shapes_of_outputs
from .translation import DTYPE_NAMES, parsed


def explain(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
    score_mod: typing.Callable[..., torch.Tensor] | None = None, block_mask: flex.BlockMask | None = None,
    scale: float | None = None, enable_gqa: bool = False, return_lse: bool = False,
    kernel_options: "FlexKernelOptions | dict[str, typing.Any] | None" = None, *, return_aux: typing.Any = None,
    prob_mod: typing.Callable[..., torch.Tensor] | None = None, dropout_p: float = 0.0,
    sink_mod: typing.Callable[..., torch.Tensor] | None = None,
    weight_mod: typing.Callable[..., torch.Tensor] | None = None,
    outputs: typing.Mapping[str, typing.Any] | None = None, training: bool | None = None, arch: str | None = None,
) -> dict[str, typing.Any]:  # fmt: skip
    """Returns what the kernel of flex_attention() for these arguments is, why it was chosen, and what it costs: the
    object that `attnc explain --json` prints.

    `training`: whether it is about the backward kernel; default: if an operand or a captured tensor requires a gradient.
    Sums among `outputs` then have one. `arch` is a GPU architecture such as "sm_90a"; default: that of the GPU. Only the
    operands' sizes and dtypes matter, so this needs no GPU if `arch` is given. Lists of blocks of a BlockMask count as a
    part of its mask_mod.

    Raises what flex_attention() raises, RunError and ArgumentError."""
    query, key, value, mask_mod, members, span = settled(
        query, key, value, block_mask, enable_gqa, return_lse, kernel_options, return_aux, arch
    )  # fmt: skip
    if arch is None and not torch.cuda.is_available():
        raise ArgumentError("there is no GPU, whose kernel is explained by default", 'give arch=, such as arch="sm_90a"')
    if outputs:
        check_reduced(outputs, return_aux, kernel_options)
    batch, heads, q_len, head_dim = query.shape
    problem = batch, heads, key.shape[1], q_len, key.shape[2]
    score_mod = with_prob(score_mod, prob_mod, dropout_p, lambda _: torch.zeros((), dtype=torch.int64), query, sink_mod, weight_mod)
    mod, captures, tensors = parsed(score_mod, mask_mod, query.device, problem, outputs)
    gradients = [name for name, tensor in tensors.items() if tensor.requires_grad and tensor.is_floating_point()]
    if training is None:
        training = bool(gradients) or any(x.requires_grad for x in (query, key, value))
    scales = None
    if span and training:  # gradients are computed in 16 bits
        members = [option for option in members if option[0] != "tile"]
    elif span:
        scales = parts_of(q_len, span), parts_of(key.shape[2], span)
    array, _keep = mod._given(captures, on_gpu=False)
    given = mod._and_gradients_of_sums(array, problem) if training else array
    wants_max = return_aux is not None and return_aux.max_scores
    launch = Launch({}, None, gradients=gradients if training else None, wants_max=wants_max, options=members)
    preparation = mod._settled(
        launch, problem, DTYPE_NAMES[query.dtype], (head_dim, value.shape[-1]), given, arch, has_lse=True, scales=scales,
        reduced=dict(zip(in_order(outputs), shapes_of_outputs(mod, query, key))),
    )  # fmt: skip
    return mod._explained(preparation, array)
