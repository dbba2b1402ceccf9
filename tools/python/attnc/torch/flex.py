"""FlexAttention's interface: flex_attention with PyTorch's signature, over attnc."""

import typing

import torch
from torch.nn.attention import flex_attention as flex

from .. import _spec as c
from .._diagnostics import check_heads, check_mask_sizes, check_mod, other_lengths
from .._suspicions import warn_of_mask
from ..launch import ALIGNED, OPTIONS, Launch, members_of
from ..prob_mods import (
    aux_type, check_dropout, check_outputs, check_weight_mod, dropped, in_order, joined,
)  # fmt: skip
from .autograd import attend, attend_by, is_current, resolved, wanted_by
from .block_mask import form_of, has_lists, mask_mod_of
from .errors import OperandError
from .graphs import attend_in_graph, attend_recorded, is_recorded, is_traced
from .fp8 import SPANS, check_fp8
from .kernels import check_dtype
from .mistakes import TORCH
from .nested import attend_nested, check_mask_of_nested, check_nested
from .repeats import look_of, remember, repeated
from .translation import translate

if typing.TYPE_CHECKING or hasattr(flex, "AuxRequest"):
    from torch.nn.attention.flex_attention import AuxOutput, AuxRequest
else:  # PyTorch before 2.9

    class AuxRequest(typing.NamedTuple):
        """Which auxiliary results flex_attention returns, by `return_aux`."""

        lse: bool = False
        max_scores: bool = False

    class AuxOutput(typing.NamedTuple):
        """Auxiliary results, f32 [B, H, Q_LEN]; None for those that were not asked for."""

        lse: torch.Tensor | None = None
        max_scores: torch.Tensor | None = None


if typing.TYPE_CHECKING:
    from torch.nn.attention.flex_attention import FlexKernelOptions as _Options
else:  # early ones lack it, others have a TypedDict of typing_extensions
    _Options = typing.TypedDict("_Options", getattr(flex, "FlexKernelOptions", c.Options).__annotations__, total=False)


class FlexKernelOptions(c.Options, _Options, total=False):
    """Options of kernels. attnc's are `fp8` and those of attnc_prepare_options in C, such as `check`: each launch checks
    the values of its operands first, and waits. Those of PyTorch's kernels are ignored."""

    fp8: bool | typing.Literal["head", "block", "row"]


_is_any_autocast_enabled = getattr(torch._C, "_is_any_autocast_enabled", lambda: True)


def autocast(query, key, value):
    """Converts the operands as torch.autocast would."""
    if not (_is_any_autocast_enabled() and torch.is_autocast_enabled(query.device.type)):
        return query, key, value
    dtype = torch.get_autocast_dtype(query.device.type)
    return query.to(dtype), key.to(dtype), value.to(dtype)


def alike(query, key, value):
    """Converts the operands to the dtype that torch computes with all of them in."""
    if query.dtype == key.dtype == value.dtype:
        return query, key, value
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        check_dtype(name, tensor)
    dtype = torch.promote_types(torch.promote_types(query.dtype, key.dtype), value.dtype)
    return query.to(dtype), key.to(dtype), value.to(dtype)


_BACKENDS = typing.get_args(getattr(flex, "_Backend", None)) or ("AUTO", "TRITON", "FLASH", "TRITON_DECODE")


def _letters_of(name):
    return name.lower().replace("_", "").removesuffix("s")


_BY_LETTERS = {_letters_of(name): name for name in (*OPTIONS, "fp8")}


def _options_of(options):
    """Returns `options` and `fp8` of a launch with these kernel_options. Raises TypeError."""
    if not options:
        return (), None
    if "BACKEND" in options and options["BACKEND"] not in _BACKENDS:
        raise ValueError(f"BACKEND is {options['BACKEND']!r}; PyTorch has {', '.join(_BACKENDS)}, and attnc ignores it")
    if "BACKEND" in options and options.get("FORCE_USE_FLEX_ATTENTION"):
        raise RuntimeError("kernel_options has BACKEND and FORCE_USE_FLEX_ATTENTION: give only BACKEND")
    for name in options:
        nearest = _BY_LETTERS.get(_letters_of(name), name)
        if nearest != name:
            raise TypeError(f"kernel_options has {name!r}: write {nearest!r}")
    members, fp8 = members_of(options), options.get("fp8")
    if fp8 is not None and not isinstance(fp8, bool) and fp8 not in SPANS:
        raise TypeError(f'fp8 is {fp8!r}; it must be True, False, or what shares a scale: {", ".join(map(repr, SPANS))}')
    return members, "block" if fp8 is True else fp8 or None


def _check_classes(query, key, value):
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        if tensor.is_nested:
            raise NotImplementedError(
                f"{name} is a NestedTensor: flex_attention takes three of them. Or pack the sequences one after another, "
                f"{name}.values(), and separate them by a mask_mod, document[q_idx] == document[kv_idx]"
            )
        if not torch.compiler.is_dynamo_compiling() and hasattr(tensor, "placements"):
            raise NotImplementedError(
                f"{name} is a DTensor: give {name}.to_local(), with captured tensors of the local heads and batch, or "
                "use torch.distributed.tensor.experimental.local_map. If rows are sharded, attnc.torch.distributed computes"
            )


def _check_results(return_lse, return_aux):
    if return_lse and return_aux is not None:
        raise ValueError("return_lse and return_aux are given: use return_aux=AuxRequest(lse=True) alone")


def _check_mask(block_mask):
    if callable(block_mask):
        raise TypeError(
            "block_mask is a function: give create_block_mask(function, B, H, Q_LEN, KV_LEN), with B and H None if "
            "the function does not depend on them"
        )
    if not isinstance(block_mask, flex.BlockMask):
        raise TypeError(
            f"block_mask is a {type(block_mask).__name__}: give create_block_mask(mask_mod, B, H, Q_LEN, KV_LEN), whose "
            "mask_mod may read a tensor, as mask[b, h, q_idx, kv_idx]"
        )
    if block_mask.mask_mod is getattr(flex, "_sliced_mask_mod_error", flex):
        raise RuntimeError("Cannot use mask_mod from a sliced BlockMask")


def _check(query, key, value, enable_gqa, block_mask, devices=("cpu", "cuda")):
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        if tensor.dim() != 4:
            raise NotImplementedError(f"{name} has {tensor.dim()} dims; it must be [B, H, L, E]")
        check_dtype(name, tensor)
        if tensor.device != query.device:
            raise ValueError(f"{name} is on {tensor.device}, query on {query.device}: move them to one device")
    if query.device.type not in devices:
        raise ValueError(f"query is on {query.device}; attnc computes on CUDA devices and on the CPU")
    check_heads(query, key, enable_gqa)
    if block_mask is None:
        if query.shape[0] != key.shape[0]:
            raise ValueError(
                f"query has batch {query.shape[0]}, key {key.shape[0]}: they must be equal without a block_mask"
            )
        return
    if has_lists(block_mask):
        lists = block_mask.kv_num_blocks
        if lists.device != query.device:
            raise OperandError(
                f"block_mask is on {lists.device}, query on {query.device}: use block_mask.to('{query.device}')"
            )
        of_lists = lists.shape[:-1]  # which may have no axes for batch and heads
    else:
        of_lists = block_mask._of[:2]
    check_mask_sizes(query, of_lists)
    lengths = block_mask.seq_lengths
    if tuple(lengths) != (query.shape[2], key.shape[2]) and not _covers_all(block_mask):
        advice = _adjusting(block_mask, query.shape[2], key.shape[2])
        raise OperandError(f"{other_lengths(lengths, query, key)}{advice}")


def _keeps_any_length():
    """Whether _adjust() of this PyTorch keeps lengths that are no multiples of the block size."""
    count, indices = (torch.zeros(shape, dtype=torch.int32, device="cpu") for shape in ((1, 1, 2), (1, 1, 2, 2)))
    return tuple(flex.BlockMask.from_kv_blocks(count, indices)._adjust(200, 200).seq_lengths) == (200, 200)


_ADJUSTS_TO_ANY = _keeps_any_length()


def _adjusting(block_mask, *wanted):
    """Returns the advice to adjust a block mask to other lengths, if this PyTorch can."""
    lengths, sizes = block_mask.seq_lengths, block_mask.BLOCK_SIZE
    is_longer = lengths[0] >= wanted[0] and lengths[1] >= wanted[1]
    if is_longer and (_ADJUSTS_TO_ANY or wanted[0] % sizes[0] == wanted[1] % sizes[1] == 0):
        return f", or use block_mask._adjust({wanted[0]}, {wanted[1]})"
    return ""


def _covers_all(block_mask):
    large = getattr(flex, "_LARGE_SPARSE_BLOCK_SIZE", 1 << 30)
    return tuple(block_mask.BLOCK_SIZE) == (large, large)


def _masks_nothing(block_mask):
    return block_mask.mask_mod is flex.noop_mask and _covers_all(block_mask)


def seed_like(tensor):
    """Returns a seed on the device of a tensor, from PyTorch's generator there."""
    return torch.randint((1 << 63) - 1, (), device=tensor.device)


def with_prob(score_mod, prob_mod, dropout_p, seed_of, tensor, sink_mod=None, weight_mod=None):
    """Returns what goes where a score_mod goes, with a prob_mod, dropout, a sink_mod and a weight_mod. Seeds are drawn by `seed_of(tensor)`, if
    there is dropout."""
    check_dropout(dropout_p)
    if dropout_p:
        check_mod("prob_mod", prob_mod)
        prob_mod = dropped(prob_mod, dropout_p, seed_of(tensor), torch.where)
    return joined(score_mod, prob_mod, sink_mod, weight_mod)


def settled(query, key, value, block_mask, enable_gqa, return_lse, kernel_options, return_aux, arch):
    """Returns (query, key, value, mask_mod, options, fp8) of a call that launches nothing, after the checks of
    flex_attention(). The operands may be on the meta device. `arch`: see check_fp8()."""
    _check_classes(query, key, value)
    options, fp8 = _options_of(kernel_options)
    query, key, value = alike(*autocast(query, key, value))
    _check_results(return_lse, return_aux)
    if block_mask is not None:
        _check_mask(block_mask)
    _check(query, key, value, enable_gqa, block_mask, ("cpu", "cuda", "meta"))
    if fp8:
        check_fp8(query, value, fp8, arch)
    mask_mod = None
    if block_mask is not None and not _masks_nothing(block_mask):
        mask_mod, _ = mask_mod_of(block_mask, query.shape[2], key.shape[2], may_walk=False)
    return query, key, value, mask_mod, options, fp8


def flex_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
    score_mod: typing.Callable[..., torch.Tensor] | None = None, block_mask: flex.BlockMask | None = None,
    scale: float | None = None, enable_gqa: bool = False, return_lse: bool = False,
    kernel_options: "FlexKernelOptions | dict[str, typing.Any] | None" = None, *, return_aux: typing.Any = None,
    prob_mod: typing.Callable[..., torch.Tensor] | None = None, dropout_p: float = 0.0,
    sink_mod: typing.Callable[..., torch.Tensor] | None = None,
    weight_mod: typing.Callable[..., torch.Tensor] | None = None,
    outputs: typing.Mapping[str, typing.Any] | None = None,
) -> typing.Any:  # fmt: skip
    """Computes attention like torch.nn.attention.flex_attention.flex_attention, with kernels that attnc compiles from
    score_mod and block_mask.mask_mod.

    torch.compile is not needed. Mods are used unchanged, including closures over tensors. Captured tensors that require
    gradients receive them. On the CPU, attnc computes with its fp64 reference, slowly; CpuWarning says so once.

    prob_mod(prob, b, h, q_idx, kv_idx) returns the weight that multiplies a row of value, from that of the softmax. If it
    is a multiple of prob by what does not depend on it, one walk computes the pass. Else there are two, the first for
    lse, and what prob_mod captures has gradients. `dropout_p` is the share of weights to
    drop behind it; those left are divided by 1 - dropout_p. Its seed comes from PyTorch's generator of the device, without
    a wait for the GPU.

    sink_mod(b, h, q_idx) returns the logit, float32, of one more term of a row's softmax, whose value is 0: an attention
    sink. lse includes it. A captured tensor that it reads, such as the sinks of heads, receives gradients.

    weight_mod(score, b, h, q_idx, kv_idx) returns the weight that multiplies a row of value, in place of the softmax: the
    result is the sum of weights times values, without a denominator. `score` is that behind score_mod. Masked scores weigh
    0. There is no lse then, and no row maximum.

    `outputs` maps names to attnc.reduce_sum(f, axes) or attnc.reduce_max(f, axes) of f(prob, score, b, h, q_idx, kv_idx):
    sums and maxima over live scores, float32, with the axes "B H KV_LEN", "B H Q_LEN" or "B H". They need `return_aux`,
    and the auxiliary output has them by name. Sums have gradients. A backward pass that meets a maximum raises
    NotImplementedError, one of a graph RuntimeError.

    `kernel_options` take the names of attnc_prepare_options in C. "tile" and "backward_tile" are the kernels' tiles, in the
    spelling of `attnc tune`, and "low_rank_error" says how far a low-rank term of score_mod may be off, as a part of its
    products; these break a graph of torch.compile. With "fp8", the forward pass rounds query, key and value, bfloat16 or float16, to e4m3, and
    gradients pass straight through the rounding. Its value says what shares a scale: "head", "block" (128 rows; also
    True) or "row". Options of Triton's kernels are ignored.

    Three NestedTensors of the jagged layout, [B, H, j, E], are a ragged batch, and give NestedTensors. A mod sees the
    sequence as b, and positions in it. `block_mask` is that of create_block_mask() for the longest lengths.

    Operands of different dtypes are converted to a common one, as copies, and the result to that of query. Kernels then
    compute in float32 if one of them is float32, or if they are float16 and bfloat16.

    Raises UntranslatableError for a mod that attnc cannot translate, OperandError for a block mask of other lengths or of
    another device, and NotImplementedError for a DTensor, operands without four dims, NestedTensors that are not jagged
    [B, H, j, E], and head dims that "fp8" does not take.
    """
    given, result_dtype = (query, key, value), None
    if weight_mod is not None:
        has_max = return_aux is not None and bool(return_aux.max_scores)
        wants_lse = return_lse or return_aux is not None and return_aux.lse
        check_weight_mod(prob_mod, dropout_p, sink_mod, wants_lse, has_max, outputs)
    if outputs:
        check_reduced(outputs, return_aux, kernel_options)
    mods = 4 if weight_mod is not None else 3 if sink_mod is not None else 2 if prob_mod is not None or dropout_p else 1
    if mods > 1:
        score_mod = with_prob(score_mod, prob_mod, dropout_p, seed_like, query, sink_mod, weight_mod)
    is_traced_here, is_nested = torch.compiler.is_dynamo_compiling(), query.is_nested
    wants_lse, wants_max = return_lse or return_aux is not None, return_aux is not None and return_aux.max_scores
    look = None
    if not (is_traced_here or is_nested or kernel_options or outputs or return_lse and return_aux is not None):
        if _is_any_autocast_enabled():
            query, key, value = autocast(query, key, value)
        query, key, value = resolved(query, key, value)
        look = look_of(score_mod, block_mask, (enable_gqa, wants_max))
        found = None if look is None else repeated(look, (query, key, value))
        if found is not None and is_current(query):
            repeat, captured = found
            launch = repeat.launch
            if scale is not None or block_mask is not None and repeat.call.workspace_bytes:  # which may hold its lists
                launch = launch.rescaled(launch.scale if scale is None else float(scale), block_mask)
            results = attend_by(repeat.call, launch, query, key, value, captured, wants_lse)
            return _returned(results, return_lse, return_aux)
    if not query.dtype == key.dtype == value.dtype:
        query, key, value = autocast(query, key, value)
        result_dtype, look = query.dtype, None
        query, key, value = alike(query, key, value)
    is_recorded_here = not is_traced_here and not is_nested and is_recorded(query, key, value)
    if is_nested and not is_traced_here:
        check_nested(query, key, value, kernel_options, outputs)
        _check(query, key, value, enable_gqa, None)
    elif is_recorded_here or is_traced_here and not is_nested:
        _check_classes(query, key, value)
    options, fp8 = _options_of(kernel_options)
    if is_traced_here and (not is_traced or options or is_nested):  # this breaks the graph
        return _outside_of_graphs(
            *given, score_mod, block_mask, scale, enable_gqa, return_lse, kernel_options, return_aux=return_aux,
            outputs=outputs,
        )  # fmt: skip
    if _is_any_autocast_enabled():
        query, key, value = autocast(query, key, value)
    _check_results(return_lse, return_aux)
    if not query.dim() == key.dim() == value.dim() == 4:
        _check(query, key, value, enable_gqa, block_mask)
    batch, heads, q_len, head_dim = query.shape
    if head_dim == 0:
        raise ValueError("query has head dim 0: it must have columns")
    if not is_traced_here:
        check_mod("score_mod", score_mod)
    if fp8:
        check_fp8(query, value, fp8)
    mask_mod = lists = None
    if block_mask is not None:
        _check_mask(block_mask)
        if is_nested:
            check_mask_of_nested(block_mask, query, key)
        if not _masks_nothing(block_mask):
            mask_mod, lists = mask_mod_of(block_mask, q_len, key.shape[2], not (is_traced_here or is_recorded_here))
    default_scale = head_dim**-0.5
    scale = default_scale if scale is None else float(scale)
    if is_nested:
        results = attend_nested(query, key, value, score_mod, mask_mod, scale, wants_max, wants_lse, options)
    elif is_traced_here or is_recorded_here:
        _check(query, key, value, enable_gqa, block_mask)
        options = {"wants_max": wants_max, "fp8": fp8, "outputs": outputs}
        if is_traced_here:
            results = attend_in_graph(query, key, value, score_mod, mask_mod, scale, mods=mods, **options)
        else:
            results = attend_recorded(query, key, value, score_mod, mask_mod, scale, **options)
    else:
        problem = batch, heads, key.shape[1], q_len, key.shape[2]
        try:
            translation = translate(score_mod, mask_mod, device=query.device, problem=problem, outputs=outputs)
        except IndexError:
            _check(query, key, value, enable_gqa, block_mask)  # which may know why
            raise
        text, captures, numbers = translation.given()
        if mask_mod is not None:
            warn_of_mask(mask_mod, text, TORCH)
        launch = Launch(
            numbers, scale, block_mask, ALIGNED, lists, text, None, *wanted_by(query, key, value, captures), wants_max,
            options, fp8, (enable_gqa, form_of(block_mask)),
        )  # fmt: skip
        check, operands = (_check, query, key, value, enable_gqa, block_mask), (query, key, value)
        seen = None if look is None else lambda call: remember(look, operands, translation, launch, default_scale, call)
        results = attend(launch, query, key, value, captures, wants_lse, check, seen)
    if result_dtype is not None:
        results = results[0].to(result_dtype), *results[1:]
    return _returned(results, return_lse, return_aux, outputs)


def _returned(results, return_lse, return_aux, outputs=None):
    out, lse, row_max, *reduced = results
    if return_aux is not None:
        aux = lse if return_aux.lse else None, row_max if return_aux.max_scores else None
        if not outputs:
            return out, AuxOutput(*aux)
        return out, aux_type(*AuxOutput._fields, *in_order(outputs))(*aux, *reduced)
    return (out, lse) if return_lse else out


def check_reduced(outputs, return_aux, kernel_options):
    """Raises TypeError, ValueError and NotImplementedError for outputs that cannot be returned."""
    check_outputs(outputs, AuxOutput._fields)
    if return_aux is None:
        raise ValueError("outputs are given without return_aux, which returns them: return_aux=AuxRequest()")
    if kernel_options and kernel_options.get("fp8"):
        raise NotImplementedError('outputs are not computed of operands that "fp8" rounds')


# torch.compiler.disable, without loading the compiler until it is first called.
_outside_of_graphs = torch._disable_dynamo(flex_attention)
