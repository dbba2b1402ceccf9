"""FlexAttention's interface for JAX."""

import dataclasses
import typing

import jax
import jax.numpy as jnp
from jax import lax

from .._diagnostics import check_heads, check_mask_mod, check_mask_sizes, check_mod, other_lengths
from .._suspicions import warn_of_mask
from ..prob_mods import (
    aux_type, check_dropout, check_outputs, check_weight_mod, dropped, in_order,
)  # fmt: skip
from .calls import mod_of
from .derivatives import attention
from .translation import check_sizes, translated

ModFunction = typing.Callable[..., jax.Array]


@dataclasses.dataclass(frozen=True)
class BlockMask:
    """A mask_mod with the sizes that it is for; from create_block_mask()."""

    mask_mod: ModFunction
    shape: tuple[int, int, int, int]  # B, H, Q_LEN, KV_LEN; B and H may be 1


def create_block_mask(mask_mod: ModFunction, B: int | None, H: int | None, Q_LEN: int, KV_LEN: int) -> BlockMask:
    """Makes a BlockMask. It returns at once: a kernel evaluates mask_mod block by block at each launch."""
    check_mask_mod(mask_mod)
    return BlockMask(mask_mod, (B or 1, H or 1, Q_LEN, KV_LEN))


def _check(query, key, value, enable_gqa, block_mask):
    for name, x in (("query", query), ("key", key), ("value", value)):
        if x.ndim != 4:
            raise ValueError(f"{name} has {x.ndim} axes; it must be [B, H, L, E]")
        check_sizes(name, x.shape)
        if x.dtype not in (jnp.bfloat16, jnp.float16, jnp.float32):
            raise ValueError(f"{name} is {x.dtype}; attnc computes bfloat16, float16 and float32: convert it")
        if x.dtype != query.dtype:
            raise ValueError(f"{name} is {x.dtype}, query {query.dtype}: make them alike")
    check_heads(query, key, enable_gqa)
    if key.shape[:3] != value.shape[:3]:
        raise ValueError(f"key is {key.shape}, value {value.shape}: they must be equal up to the last axis")
    if query.shape[0] != key.shape[0]:
        raise ValueError(f"query has batch {query.shape[0]}, key {key.shape[0]}: they must be equal")
    if isinstance(block_mask, BlockMask):
        if block_mask.shape[2:] != (query.shape[2], key.shape[2]):
            raise ValueError(other_lengths(block_mask.shape[2:], query, key))
        check_mask_sizes(query, block_mask.shape[:2])
    elif block_mask is not None and not callable(block_mask):
        raise TypeError(
            f"block_mask is {type(block_mask).__name__}: give a mask_mod(b, h, q_idx, kv_idx), or create_block_mask(...)"
        )


def _along_all(arrays):
    """Returns the arrays such that all vary along the axes of a mesh along which any does, inside jax.shard_map. Then
    gradients of replicated ones are summed over the others' axes."""
    axes = [jax.typeof(x).mat.varying for x in arrays]
    missing = [tuple(sorted(frozenset().union(*axes) - of_array)) for of_array in axes]
    return [lax.pcast(x, of_others, to="varying") if of_others else x for x, of_others in zip(arrays, missing)]


def _with_dropout(prob_mod, dropout_p, key):
    if isinstance(dropout_p, jax.core.Tracer):
        raise TypeError("dropout_p is traced: give a Python number, as by static_argnames of jax.jit")
    check_dropout(dropout_p)
    if not dropout_p:
        return prob_mod
    if key is None:
        raise ValueError("dropout_p is given without dropout_key: give a key, as jax.random.split() makes for each call")
    seed = lax.bitcast_convert_type(jax.random.bits(key, dtype=jnp.uint32), jnp.int32)
    return dropped(prob_mod, dropout_p, seed, jnp.where)


def _returned(out, lse, reduced, return_lse, outputs):
    if outputs:
        return out, aux_type("lse", *in_order(outputs))(lse if return_lse else None, *reduced)
    return (out, lse) if return_lse else out


def flex_attention(
    query: jax.Array, key: jax.Array, value: jax.Array, score_mod: ModFunction | None = None,
    block_mask: BlockMask | ModFunction | None = None, scale: float | None = None, enable_gqa: bool = False,
    return_lse: bool = False, *, prob_mod: ModFunction | None = None, dropout_p: float = 0.0,
    dropout_key: jax.Array | None = None, sink_mod: ModFunction | None = None,
    weight_mod: ModFunction | None = None, outputs: typing.Mapping[str, typing.Any] | None = None,
) -> typing.Any:  # fmt: skip
    """Computes attention with kernels that attnc compiles from score_mod and mask_mod.

    `query` is [B, H, L, E], `key` [B, HKV, S, E], `value` [B, HKV, S, EV], of one dtype: bfloat16, float16 or float32.
    score_mod(score, b, h, q_idx, kv_idx) returns the changed score, f32; `block_mask`, a mask_mod(b, h, q_idx, kv_idx)
    or what create_block_mask() made of one, returns whether a score counts. They are functions of jax.numpy over
    scalars, may capture arrays, and are traced at each call; under jax.jit once. `scale` defaults to 1 / sqrt(E).
    `enable_gqa` allows fewer heads of key and value.

    prob_mod(prob, b, h, q_idx, kv_idx) returns the weight that multiplies a row of value, from that of the softmax. If it
    is a multiple of prob by what does not depend on it, one walk computes the pass. Else there are two, the first for
    lse, and what prob_mod captures has gradients. `dropout_p` is the share of weights to drop behind it; those left are divided
    by 1 - dropout_p. They are drawn by `dropout_key`, a key of jax.random: equal keys drop equal weights.

    sink_mod(b, h, q_idx) returns the logit, float32, of one more term of a row's softmax, whose value is 0: an attention
    sink. lse includes it. A captured array that it reads, such as the sinks of heads, has a gradient.

    weight_mod(score, b, h, q_idx, kv_idx) returns the weight that multiplies a row of value, in place of the softmax: the
    result is the sum of weights times values, without a denominator. `score` is that behind score_mod. Masked scores weigh
    0. There is no lse then.

    `outputs` maps names to attnc.reduce_sum(f, axes) or attnc.reduce_max(f, axes) of f(prob, score, b, h, q_idx, kv_idx):
    sums and maxima over live scores, float32, with the axes "B H KV_LEN", "B H Q_LEN" or "B H". Sums have gradients, which are
    not differentiated again. Other derivatives of outputs raise NotImplementedError.

    Returns out [B, H, L, EV]. With `return_lse`, also returns lse [B, H, L] (float32, natural logarithm). With `outputs`,
    returns out and a named tuple of lse, which is None without `return_lse`, and the outputs by name. A row without
    a live score gives 0, and its sink as lse, or -inf.

    jax.grad gives gradients of query, key, value, and captured arrays, also through lse and sums. jax.jvp and second derivatives work;
    so do jax.jit, jax.vmap and jax.shard_map. In a program that XLA partitions, attention is not split. On
    the CPU, attnc computes with its fp64 reference, slowly; CpuWarning says so once.

    Raises UntranslatableError for a mod that attnc cannot translate, IndexError for a captured array that is too short
    for its positions, ValueError and TypeError for operands that do not fit.
    """
    if isinstance(scale, jax.core.Tracer):
        raise TypeError("scale is traced: give a Python number, or multiply query by it and give scale=1.0")
    query, key, value = jnp.asarray(query), jnp.asarray(key), jnp.asarray(value)
    _check(query, key, value, enable_gqa, block_mask)
    check_mod("score_mod", score_mod)
    check_mod("prob_mod", prob_mod)
    check_mod("sink_mod", sink_mod)
    check_mod("weight_mod", weight_mod)
    if weight_mod is not None:
        check_weight_mod(prob_mod, dropout_p, sink_mod, return_lse, outputs=outputs)
    check_outputs(outputs, ["lse"])
    prob_mod = _with_dropout(prob_mod, dropout_p, dropout_key)
    mask_mod = block_mask.mask_mod if isinstance(block_mask, BlockMask) else block_mask
    problem = *query.shape[:2], key.shape[1], query.shape[2], key.shape[2]
    mods, captured = translated(score_mod, mask_mod, prob_mod, sink_mod, weight_mod, outputs, problem)
    mod_of(mods.text)  # raises what is wrong with it here, and not while XLA compiles
    if mask_mod is not None:
        warn_of_mask(mask_mod, mods.text, *jax.__path__)
    scale = query.shape[3] ** -0.5 if scale is None else float(scale)
    out, lse, *reduced = attention(mods, scale, *_along_all([query, key, value, *captured]))
    return _returned(out, lse, reduced, return_lse, outputs)
