#!/usr/bin/env python3
"""Compares attnc.jax with attention by definition: results, gradients, transformations, and errors for wrong operands.

  ATTNC_LIBRARY=libattnc.so python3 jax_test.py [-v ...]

Runs on the CPU, and on a GPU if jax has one. Prints SKIPPED if jax is not installed.
"""

import functools
import itertools
import os
import pathlib
import unittest
import unittest.mock
import warnings

import needs

os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=2"
needs.modules("jax")
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, PartitionSpec

import attnc
from attnc.jax import UntranslatableError, and_masks, choice, create_block_mask, flex_attention, noop_mask, or_masks
from attnc.jax import calls

jax.config.update("jax_default_matmul_precision", "highest")
# Relative errors, of the results as a whole. Gradients are sums of more rounded factors.
TOLERANCE = {"float32": 2e-5, "float16": 3e-3, "bfloat16": 2e-2}


@functools.partial(jax.jit, static_argnums=(3, 4, 5))
def defined(q, k, v, score_mod=None, mask_mod=None, scale=None):
    """Returns by_definition(), compiled as a whole. Mods may not capture tracers."""
    return by_definition(q, k, v, score_mod, mask_mod, scale)


def by_definition(q, k, v, score_mod=None, mask_mod=None, scale=None):
    """Returns (out, lse) in float32."""
    q, k, v = (x.astype(jnp.float32) for x in (q, k, v))
    group = q.shape[1] // k.shape[1]
    k, v = (jnp.repeat(x, group, axis=1) for x in (k, v))
    score = jnp.einsum("bhqd,bhkd->bhqk", q, k) * (q.shape[-1] ** -0.5 if scale is None else scale)
    sizes = score.shape
    if score_mod is not None:
        score = at_all(score_mod, sizes, score)
    live = jnp.ones(sizes, bool) if mask_mod is None else jnp.broadcast_to(at_all(mask_mod, sizes), sizes)
    live &= score > -jnp.inf
    some = live.any(-1, keepdims=True)
    top = lax.stop_gradient(jnp.where(some, jnp.where(live, score, -jnp.inf).max(-1, keepdims=True, initial=-jnp.inf), 0))
    weight = jnp.where(live, jnp.exp(jnp.where(live, score - top, 0)), 0)
    total = weight.sum(-1, keepdims=True)
    out = jnp.einsum("bhqk,bhkd->bhqd", weight / jnp.where(some, total, 1), v)
    lse = jnp.where(some, jnp.log(jnp.where(some, total, 1)) + top, -jnp.inf)[..., 0]
    return out, lse


def at_all(mod, sizes, *score):
    """Evaluates a mod for all scores [B, H, L, S]."""
    for axis in (3, 2, 1, 0):  # the innermost axis first
        positions = [0 if place == axis else None for place in range(4)]
        mod = jax.vmap(mod, [*[0] * len(score), *positions])
    return mod(*score, *(jnp.arange(size, dtype=jnp.int32) for size in sizes))


def operands(batch=2, heads=4, q_len=37, kv_len=41, head_dim=16, kv_heads=None, v_dim=None, dtype="float32", seed=0):
    keys = jax.random.split(jax.random.key(seed), 3)
    shapes = (
        (batch, heads, q_len, head_dim), (batch, kv_heads or heads, kv_len, head_dim),
        (batch, kv_heads or heads, kv_len, v_dim or head_dim),
    )  # fmt: skip
    return [jax.random.normal(key, shape).astype(dtype) for key, shape in zip(keys, shapes)]


def normal(*shape, seed=7):
    return jax.random.normal(jax.random.key(seed), shape)


def causal(b, h, q, k):
    return q >= k


DOCUMENTS = jnp.asarray(np.repeat(np.arange(6), 7), jnp.int32)


def same_document(b, h, q, k):
    return DOCUMENTS[q] == DOCUMENTS[k]


def alibi(slopes):
    return lambda score, b, h, q, k: score + slopes[h] * (k - q)


def softcap(cap):
    return lambda score, b, h, q, k: cap * jnp.tanh(score / cap)


def table_bias(table):
    def mod(score, b, h, q, k):
        bucket = jnp.clip(q - k + 16, 0, table.shape[0] - 1)
        return score + table[bucket, h]

    return mod


def nested(weights):
    @jax.jit
    def inner(score, h):
        return jnp.where(score > 0, score * weights[h], jax.nn.softplus(score))

    return lambda score, b, h, q, k: inner(score, h) + jnp.take(weights, h)


def branches(weights):
    return lambda score, b, h, q, k: lax.cond(q > k, lambda x: x * weights[h], lambda x: x - 1, score)


def relative_positions(embeddings):
    """Products of 24 numbers, a sum that becomes a loop."""
    return lambda score, b, h, q, k: score + jnp.dot(embeddings[h, 0], embeddings[h, (q - k) % 5])


# name -> (score_mod of captured floats, or None; their shapes; mask_mod)
MODS = {
    "noop": (None, (), None),
    "causal": (None, (), causal),
    "alibi": (alibi, ((4,),), causal),
    "softcap": (softcap, ((),), causal),
    "documents": (None, (), same_document),
    "alibi in documents": (alibi, ((4,),), and_masks(causal, same_document)),
    "window": (None, (), lambda b, h, q, k: (q - k < 9) & (k - q <= 3)),
    "prefix": (None, (), or_masks(causal, lambda b, h, q, k: k < 5)),
    "relative bias": (table_bias, ((33, 4),), None),
    "bias from the end": (lambda t: lambda s, b, h, q, k: s + t[h, q - k], ((4, 50),), None),
    "bias of pairs": (lambda t: lambda s, b, h, q, k: s + t[q, k], ((37, 41),), None),
    "bias of a batch": (lambda t: lambda s, b, h, q, k: s * t[b] + t[-1], ((2,),), None),
    "a mod for each sequence": (
        lambda t: choice(jnp.array([1, 0]), lambda s, *at: s, alibi(t)), ((4,),), choice(jnp.array([0, 1]), causal, noop_mask)
    ),
    "nested jit": (nested, ((4,),), noop_mask),
    "lax.cond": (branches, ((4,),), None),
    "relative positions": (relative_positions, ((4, 5, 24),), None),
}


def relative_error(ours, theirs):
    ours, theirs = (np.asarray(x, np.float64) for x in (ours, theirs))
    return np.abs(ours - theirs).max(initial=0) / max(np.abs(theirs).max(initial=0), 1e-3)


class Compared(unittest.TestCase):
    def assert_close(self, ours, theirs, dtype="float32", factor=1.0):
        ours, theirs = jax.tree.leaves(ours), jax.tree.leaves(theirs)
        self.assertEqual(len(ours), len(theirs))
        for x, y in zip(ours, theirs):
            self.assertEqual(x.shape, y.shape)
            x, y = (np.asarray(z, np.float32) for z in (x, y))
            np.testing.assert_array_equal(np.isfinite(x), np.isfinite(y))
            x, y = x[np.isfinite(x)], y[np.isfinite(y)]
            self.assertLess(relative_error(x, y), TOLERANCE[dtype] * factor)

    def compare(self, make, captured, mask_mod, q, k, v, **options):
        """Compares results, and under jit gradients of all operands and captures."""
        dtype = str(q.dtype)
        weight = normal(*q.shape[:3], v.shape[3]), normal(*q.shape[:3], seed=8)
        group = {"enable_gqa": True} if q.shape[1] != k.shape[1] else {}

        def ours(q, k, v, *captured):
            mod = None if make is None else make(*captured)
            return flex_attention(q, k, v, mod, mask_mod, return_lse=True, **group, **options)

        def theirs(q, k, v, *captured):
            return by_definition(q, k, v, None if make is None else make(*captured), mask_mod, **options)

        def loss(function, *args):
            out, lse = function(*args)
            lse = jnp.where(jnp.isfinite(lse), lse, 0)
            return (out.astype(jnp.float32) * weight[0]).sum() + (lse * weight[1]).sum()

        args = q, k, v, *captured
        expected = jax.jit(theirs)(*args)
        self.assert_close(ours(*args), expected, dtype)
        places = tuple(range(len(args)))
        expected = jax.jit(jax.grad(functools.partial(loss, theirs), places))(*args)
        self.assert_close(jax.jit(jax.grad(functools.partial(loss, ours), places))(*args), expected, dtype, 4)


class Definition(Compared):
    def test_mods(self):
        for name, (make, shapes, mask_mod) in MODS.items():
            captured = [abs(normal(*shape)) + 0.5 for shape in shapes]
            with self.subTest(name):
                self.compare(make, captured, mask_mod, *operands())

    def test_dtypes_heads_and_lengths(self):
        for dtype, sizes in itertools.product(
            TOLERANCE, ({"kv_heads": 2}, {"kv_heads": 1, "q_len": 1, "kv_len": 130}, {"q_len": 129, "kv_len": 7, "v_dim": 8})
        ):  # fmt: skip
            with self.subTest(dtype=dtype, **sizes):
                self.compare(alibi, [abs(normal(4))], None, *operands(**{"batch": 1, "dtype": dtype, **sizes}))

    def test_captures_of_other_dtypes(self):
        for dtype in ("bfloat16", "float16", "int32", "int16", "int8", "uint8", "bool"):
            table = (abs(normal(4)) * 3).astype(dtype)
            mod = lambda score, b, h, q, k: score + table[h].astype(jnp.float32)
            with self.subTest(dtype):
                q, k, v = operands()
                self.assert_close(flex_attention(q, k, v, mod), by_definition(q, k, v, mod)[0])

    def test_gradients_of_half_captures(self):
        self.compare(alibi, [abs(normal(4)).astype("bfloat16")], causal, *operands(dtype="bfloat16"))

    def test_rows_without_scores(self):
        mask = lambda b, h, q, k: (q % 5 != 0) & (q > k)
        self.compare(alibi, [abs(normal(4))], mask, *operands())
        out, lse = flex_attention(*operands(), None, mask, return_lse=True)
        self.assertTrue((out[:, :, 0] == 0).all() and (lse[:, :, 0] == -jnp.inf).all())

    def test_large_scores(self):
        """-1e9 as a mask: rows of which all scores are that give the mean of v."""
        def mod(score, b, h, q, k):
            return jnp.where((q > k) & (q % 3 != 0), score, -1e9)

        q, k, v = operands()
        self.assert_close(flex_attention(q, k, v, mod), by_definition(q, k, v, mod)[0])
        self.assert_close(flex_attention(q, k, v, mod)[:, :, 0], v.mean(2))
        self.compare(lambda: mod, [], None, q, k, v)

    def test_numbers_under_x64(self):
        """Python numbers, and what follows from integers, stay f32."""
        mods = (
            lambda score, b, h, q, k: score + jnp.exp2(-(h + 1) * 2.0) * (q - k),
            lambda score, b, h, q, k: score + jnp.where(q >= k, 0.0, -1e4),
            lambda score, b, h, q, k: score + (q - k) / 2,
            lambda score, b, h, q, k: score * lax.cond(q > k, lambda: 1.0, lambda: 0.5),
        )
        q, k, v = operands()
        expected = [flex_attention(q, k, v, mod) for mod in mods]
        with jax.enable_x64(True):
            for mod, out in zip(mods, expected):
                np.testing.assert_array_equal(flex_attention(q, k, v, mod), out)
                batched = jax.vmap(lambda q, mod=mod: flex_attention(q, k, v, mod))(jnp.stack([q, q]))
                self.assert_close(batched, [jnp.stack([out, out])])

    def test_scale(self):
        self.compare(None, [], causal, *operands(), scale=0.7)

    def test_empty(self):
        for sizes in ({"batch": 0}, {"q_len": 0}, {"kv_len": 0}):
            with self.subTest(**sizes):
                q, k, v = operands(**sizes)
                self.assert_close(flex_attention(q, k, v, None, causal), by_definition(q, k, v, None, causal)[0])
                jax.grad(lambda q: flex_attention(q, k, v).sum())(q)

    def test_operations(self):
        """Functions of the score, and of positions."""
        nn, one = jax.nn, jnp.float32(1)
        of_scores = (
            jnp.abs, jnp.sign, lambda x: jnp.where(jnp.isnan(jnp.sign(x * jnp.inf * 0)), x, 0), lambda x: jnp.float32(1) / jnp.sign(x * 0) > 0,
            jnp.square, lambda x: x**3, lambda x: (jnp.abs(x) + one) ** -2, lambda x: jnp.abs(x) ** 1.5, jnp.exp, jnp.exp2,
            lambda x: jnp.log(jnp.abs(x) + one), lambda x: jnp.log1p(jnp.abs(x)), jnp.expm1, lambda x: jnp.sqrt(jnp.abs(x)), jnp.sin, jnp.cos,
            jnp.tan, jnp.tanh, jnp.sinh, jnp.cosh, jnp.arctan, jnp.arcsinh, lambda x: jnp.arcsin(jnp.tanh(x)), lambda x: jnp.arccos(jnp.tanh(x)),
            lambda x: jnp.arctanh(jnp.tanh(x) / 2), lambda x: jnp.arccosh(x * x + 1.5), lambda x: jnp.arctan2(x, x - 0.5), jnp.sinc,
            lambda x: jnp.hypot(x * 1e25, 3e24) * 1e-25, lambda x: lax.erfc(x * 3), lambda x: lax.fori_loop(0, 3, lambda i, y: y * x + i, x), nn.sigmoid, nn.relu, nn.gelu, nn.silu, nn.softplus, nn.elu,
            nn.leaky_relu, nn.log_sigmoid, lax.erf, lax.erfc, jnp.floor, jnp.ceil, jnp.round, jnp.trunc,
            lambda x: jnp.clip(x, -0.3, 0.4), lambda x: jnp.maximum(x, 0.1), lambda x: jnp.minimum(x, 0.1),
            lambda x: x // 0.3, lambda x: x % 0.3, lambda x: jnp.fmod(x, 0.3), lambda x: lax.rsqrt(jnp.abs(x) + 1),
            lambda x: jnp.where(jnp.isnan(x) | jnp.isinf(x), 0, x), lambda x: jnp.nan_to_num(x),
            lambda x: lax.stop_gradient(x) * x, lambda x: x.astype(jnp.int32) + 0.5, lambda x: jnp.logaddexp(x, 0.5),
            lambda x: jnp.stack([x, 2 * x, 3 * x]).sum(), lambda x: jnp.array([x, 1.0, x])[::-1].max(),
            lambda x: jnp.concatenate([x[None], x[None] * 2])[1], lambda x: lax.reduce_precision(x, 8, 23),
            lambda x: lax.select_n(jnp.int32(1), x, x * 2, x * 3), lambda x: jnp.outer(jnp.arange(3.0), x[None]).T.sum(),
            jax.checkpoint(lambda x: jnp.sin(x) * x), jax.jit(lambda x: jnp.cos(x) * x),
        )  # fmt: skip
        q, k, v = operands(q_len=5, kv_len=9)
        for number, function in enumerate(of_scores):
            mod = lambda score, b, h, q, k: function(score * 2)
            with self.subTest(number=number):
                self.assert_close(flex_attention(q, k, v, mod), defined(q, k, v, mod)[0])
        of_positions = (
            lambda q, k: (q - k) // 3, lambda q, k: (q - k) % 3, lambda q, k: lax.rem(q - k, jnp.int32(3)),
            lambda q, k: lax.div(q - k, jnp.int32(-3)), lambda q, k: (q ^ k) & 3, lambda q, k: (q << 2) >> 1,
            lambda q, k: ~q | k, lambda q, k: (q - k) ** 2, lambda q, k: jnp.sign(q - k), lambda q, k: -jnp.abs(q - k),
            lambda q, k: jnp.minimum(q, k) - jnp.maximum(q, 2), lambda q, k: (q * 100).astype(jnp.int8),
            lambda q, k: (q * 100).astype(jnp.uint8), lambda q, k: (q > k).astype(jnp.int32) + (q == k),
            lambda q, k: jnp.arange(20)[q + k], lambda q, k: jnp.logical_xor(q > 2, k > 2).astype(jnp.float32),
            lambda q, k: jnp.asarray([3, 1, 4, 1, 5])[q % 5], lambda q, k: jnp.arange(40).reshape(5, 8)[q, k % 8],
            lambda q, k: lax.dynamic_slice(jnp.arange(20), (q + 14,), (4,)).sum(), lambda q, k: jnp.arange(8)[-1 - q],
            lambda q, k: jnp.take(jnp.arange(6.0), q + k, mode="fill", fill_value=-2.0),
            lambda q, k: jnp.take(jnp.arange(6.0), q + k, mode="clip"),
            lambda q, k: jnp.arange(12).reshape(3, 4)[jnp.stack([q % 3, k % 3]), 2].sum(),
            *(
                lambda q, k, method=method: jnp.searchsorted(jnp.array([-5, -2, -2, 0, 1]), q - k, method=method)
                + 8 * jnp.searchsorted(jnp.arange(40) // 3 - 6, q - k, method=method, side="right")
                for method in ("scan", "scan_unrolled", "sort", "compare_all")
            ),
            lambda q, k: jnp.digitize(q - k, jnp.array([-3, 0, 0, 2])) - jnp.digitize(q, jnp.array([4, 3, 1]), right=True),
            lambda q, k: jnp.searchsorted(jnp.array([-1.5, 0.0, 2.0, jnp.nan]), jnp.where(q > 2, jnp.nan, k - 2.0)),
            lambda q, k: jnp.isin(q * k, jnp.array([0, 3, 6])) + 2 * jnp.isin(q + k, jnp.arange(40) * 3, invert=True),
            lambda q, k: lax.scan(lambda total, x: (total + x * q, total), 1, jnp.arange(5) + k)[1][3],
            lambda q, k: (attnc.random(-7, 1, 2, q, k) * 2**24).astype(jnp.int32) % 5,
            lambda q, k: (attnc.random(jnp.uint32(4e9), 1, 2, k * 7, q) * 2**16).astype(jnp.int32) % 5,
        )  # fmt: skip
        for number, function in enumerate(of_positions):
            mod = lambda score, b, h, q, k: score + 0.1 * function(q, k)
            with self.subTest(position=number):
                self.assert_close(
                    flex_attention(q, k, v, mod), defined(q, k, v, mod)[0], factor=4
                )


class SinkTest(Compared):
    """sink_mod, against a further column of scores."""

    def test_results_and_gradients(self):
        q, k, v = operands()
        rows = normal(q.shape[2])
        weight, sinks = normal(2, 4, 37, 16), normal(4).at[1].set(200.0)

        def ours(q, k, v, sinks, rows):
            sink_mod = lambda b, h, q: sinks[h] + rows[q]
            out, lse = flex_attention(q, k, v, block_mask=causal, return_lse=True, sink_mod=sink_mod)
            return (out * weight).sum() + jnp.sin(lse).sum()

        def theirs(q, k, v, sinks, rows):
            score = jnp.einsum("bhqd,bhkd->bhqk", q, k) * q.shape[-1] ** -0.5
            score = jnp.where(at_all(causal, score.shape), score, -jnp.inf)
            column = jnp.broadcast_to((sinks[:, None] + rows)[None, ..., None], (*score.shape[:3], 1))
            score = jnp.concatenate([score, column], -1)
            out = jax.nn.softmax(score)[..., :-1] @ v
            return (out * weight).sum() + jnp.sin(jax.nn.logsumexp(score, -1)).sum()

        found, wanted = (jax.grad(f, range(5))(q, k, v, sinks, rows) for f in (jax.jit(ours), theirs))
        self.assert_close(found, wanted, factor=8)
        each = jax.vmap(lambda s: flex_attention(q, k, v, sink_mod=lambda b, h, q: s[h]))(jnp.stack([sinks, -sinks]))
        self.assert_close(each[1], flex_attention(q, k, v, sink_mod=lambda b, h, q: -sinks[h]))

    def test_mistakes(self):
        for bad, words in ((lambda b, h, q: q, "returns an int"), (lambda b, h, q, k: 0.0, "must take b, h and q_idx")):
            with self.assertRaisesRegex(UntranslatableError, words):
                flex_attention(*operands(), sink_mod=bad)


class BehindTheSoftmax(Compared):
    """prob_mod and dropout, against the definition with the same random numbers."""

    @staticmethod
    def dropped(q, k, v, prob_mod, score_mod=None, mask_mod=None):
        score = jnp.einsum("bhqd,bhkd->bhqk", q, k) * q.shape[-1] ** -0.5
        score = score if score_mod is None else at_all(score_mod, score.shape, score)
        score = score if mask_mod is None else jnp.where(at_all(mask_mod, score.shape), score, -jnp.inf)
        return at_all(prob_mod, score.shape, jax.nn.softmax(score)) @ v

    @staticmethod
    def drop_by(seed, dropout_p=0.25):
        return lambda p, b, h, q, k: jnp.where(attnc.random(seed, b, h, q, k) < dropout_p, 0.0, p / (1 - dropout_p))

    def test_results_and_gradients(self):
        q, k, v = operands()
        seed, slopes, weight = jnp.int32(-9), normal(4), normal(2, 4, 37, 16)
        score_mod = lambda slopes: lambda score, b, h, q, k: score + slopes[h] * (q - k) / 16
        ours = lambda q, k, v, slopes: flex_attention(
            q, k, v, score_mod(slopes), causal, prob_mod=self.drop_by(seed)
        )
        theirs = lambda q, k, v, slopes: self.dropped(q, k, v, self.drop_by(seed), score_mod(slopes), causal)
        self.assert_close(ours(q, k, v, slopes), theirs(q, k, v, slopes))
        found, wanted = (
            jax.grad(lambda *x, f=f: (f(*x) * weight).sum(), (0, 1, 2, 3))(q, k, v, slopes) for f in (jax.jit(ours), theirs)
        )
        self.assert_close(found, wanted, factor=4)

    def test_dropout_by_a_key(self):
        q, k, v = operands()
        keys = jax.random.split(jax.random.key(3), 2)
        call = jax.jit(lambda key, q=q, **options: flex_attention(q, k, v, dropout_p=0.25, dropout_key=key, **options))
        seed = lax.bitcast_convert_type(jax.random.bits(keys[0], dtype=jnp.uint32), jnp.int32)
        self.assert_close(call(keys[0]), self.dropped(q, k, v, self.drop_by(seed)))
        np.testing.assert_array_equal(call(keys[0]), call(keys[0]))
        self.assertGreater(relative_error(call(keys[0]), call(keys[1])), 0.1)
        np.testing.assert_array_equal(jax.vmap(call)(keys)[1], call(keys[1]))
        both = lambda p, b, h, q, k: self.drop_by(seed)(p * (h + 1), b, h, q, k)
        found = flex_attention(
            q, k, v, prob_mod=lambda p, b, h, q, k: p * (h + 1), dropout_p=0.25, dropout_key=keys[0]
        )
        self.assert_close(found, self.dropped(q, k, v, both))
        plain = flex_attention(q, k, v)
        np.testing.assert_array_equal(flex_attention(q, k, v, dropout_p=0.0, dropout_key=keys[0]), plain)
        # A checkpoint drops the same weights again.
        loss = lambda q: (call(keys[0], q) ** 2).sum()
        np.testing.assert_array_equal(jax.grad(jax.checkpoint(loss))(q), jax.grad(loss)(q))

    def test_numbers_are_those_of_other_doors(self):
        v = jnp.eye(40)[None, None]
        q, seed = jnp.zeros((1, 1, 40, 40)), jnp.int32(1234)
        kept = np.asarray(flex_attention(q, q, v, prob_mod=self.drop_by(seed)))[0, 0] != 0
        wanted = attnc.random(1234, 0, 0, np.arange(40)[:, None], np.arange(40)[None]) >= 0.25
        np.testing.assert_array_equal(kept, wanted)

    def test_mistakes(self):
        q, k, v = operands()
        for told, kind, options in (
            ("dropout_p is 1.5: give the share", ValueError, {"dropout_p": 1.5}),
            ("without dropout_key: give a key", ValueError, {"dropout_p": 0.5}),
            ("prob_mod is a int", TypeError, {"prob_mod": 3}),
            ("the prob_mod .* must take prob, b, h, q_idx and kv_idx", TypeError, {"prob_mod": lambda p, b, h: p}),
        ):  # fmt: skip
            with self.assertRaisesRegex(kind, told):
                flex_attention(q, k, v, **options)
        with self.assertRaisesRegex(TypeError, "dropout_p is traced"):
            jax.jit(lambda p: flex_attention(q, k, v, dropout_p=p, dropout_key=jax.random.key(0)))(0.1)


class Transformations(Compared):
    def test_integers(self):
        """Integers of each width near their limits are those of XLA: wrap-around, division by zero, shifts by any
        count, floats that do not fit."""
        for number, dtype in enumerate(("int8", "uint8", "int32", "uint32", "int64")):
            with self.subTest(dtype=dtype), jax.enable_x64(dtype == "int64"):
                self.check_integers(dtype, np.random.default_rng(number))

    def check_integers(self, dtype, random):
        least, most, size = np.iinfo(dtype).min, np.iinfo(dtype).max, 24
        edges = [x for x in (0, 1, 2, 3, 7, 8, 15, 31, 32, 33, 64, -1, -2, -8, -33, least, least + 1, most) if least <= x]
        held = {"uint16": "int32", "uint32": "int32"}.get(dtype, dtype)  # arrays of these are not captured
        a, b = (jnp.asarray(random.permutation(edges * 2)[:size].astype(dtype).astype(held)) for _ in range(2))
        reals = jnp.asarray([0, -1, 1.5, 300, -300, 7e4, 3e9, -3e9, 1e20, -1e20, jnp.inf, -jnp.inf, jnp.nan] * 2, "float32")
        one = np.ones((), dtype)
        functions = [
            lax.add, lax.sub, lax.mul, lax.div, lax.rem, lax.shift_left, lax.shift_right_arithmetic, lambda x, y: x // y,
            lax.shift_right_logical, lambda x, y: x >> y, lambda x, y: x % y, lambda x, y: jnp.abs(x) - jnp.sign(y),
            lambda x, y: -x ^ ~y, lambda x, y: x**3 + y**2, lambda x, y: jnp.clip(x, y, y + one), lambda x, y: x ** (y & 3),
            lambda x, y: lax.population_count(x) + y, lambda x, y: jnp.stack([x, y, x]).sum(dtype=dtype),
            lambda x, y: jnp.stack([x, y, y]).prod(dtype=dtype), lambda x, y: jnp.fmod(x, y), lambda x, y: x > y,
            *(lambda x, y, by=by: (x + y) // by for by in (3, most // 2)),
            *(lambda x, y, by=by: lax.shift_right_logical(x, by * one) - (y << by * one) for by in (0, 3, 7, 31)),
            *(lambda x, y, to=to: (x + y).astype(to).astype(dtype) for to in ("int8", "uint8", "uint16", "int32", "uint32")),
        ]  # fmt: skip

        def values(q, k):
            x, y = a[q].astype(dtype), b[k].astype(dtype)
            found = [function(x, y) for function in functions] + [(reals[q] + reals[k]).astype(dtype)]
            return [value.astype(held) for value in found]

        places = jnp.arange(size, dtype=jnp.int32)
        expected = jax.jit(jax.vmap(jax.vmap(values, (None, 0)), (0, None)))(places, places)
        q, k, v = operands(1, 1, size, size)

        def wrong(b, h, q, k):
            return functools.reduce(lambda x, y: x | y, (x != want[q, k] for x, want in zip(values(q, k), expected)))

        if bool((flex_attention(q, k, v, None, wrong, return_lse=True)[1] > -jnp.inf).any()):
            for number, want in enumerate(expected):
                mod = lambda b, h, q, k: values(q, k)[number] != want[q, k]
                lse = flex_attention(q, k, v, None, mod, return_lse=True)[1]
                self.assertFalse(bool((lse > -jnp.inf).any()), f"function {number} of {dtype}")

    def test_shifts_of_positions(self):
        """Bits for each key, as of packed trees, by more keys than bits."""
        bits = jnp.arange(41) * 7 + 1
        for mod in (
            lambda b, h, q, k: (bits[q] >> k) & 1 == 1, lambda b, h, q, k: (bits[q] >> (k - 8)) & 1 == 1,
            lambda b, h, q, k: q << 33 == 0, lambda b, h, q, k: (q - k) >> 40 == 0,
        ):  # fmt: skip
            self.compare(None, [], mod, *operands())

    def test_export(self):
        q, _, _ = operands(q_len=37)
        attend = jax.jit(lambda q: flex_attention(q, q, q, None, causal))
        checks = [jax.export.DisabledSafetyCheck.custom_call("attnc_attention")]
        exported = jax.export.export(attend, disabled_checks=checks)(q)
        self.assert_close(exported.call(q), defined(q, q, q, None, causal)[0])
        (length,) = jax.export.symbolic_shape("n")
        with self.assertRaisesRegex(ValueError, "query has a size `n` without a number: .* one program for each length"):
            jax.export.export(attend, disabled_checks=checks)(jax.ShapeDtypeStruct((1, 2, length, 16), "float32"))
        biased = jax.jit(lambda bias: flex_attention(q, q, q, lambda s, b, h, q, k: s + bias[h, 0]))
        with self.assertRaisesRegex(ValueError, "captured array `bias` has a size `n`"):
            jax.export.export(biased)(jax.ShapeDtypeStruct((4, length), "float32"))

    def test_captured_tracers(self):
        """Mods capture what a compiled function computes."""
        q, k, v = operands()

        def attend(function, x):
            slopes, documents = jnp.exp(x), jnp.cumsum(jnp.arange(41) % 10 == 0)
            return function(q, k, v, alibi(slopes), lambda b, h, q, k: documents[q] == documents[k])

        theirs = lambda *args: by_definition(*args)[0]
        x = normal(4)
        self.assert_close(jax.jit(lambda x: attend(flex_attention, x))(x), jax.jit(functools.partial(attend, theirs))(x))
        ours, expected = (jax.grad(lambda x: (attend(f, x) ** 2).sum()) for f in (flex_attention, theirs))
        self.assert_close(jax.jit(ours)(x), jax.jit(expected)(x), factor=4)

    def test_vmap(self):
        """Over operands, captures, or both, and twice; mods see b within the entry."""
        q, k, v = (jnp.stack([x, 2 * x, -x]) for x in operands())
        slopes, bias = abs(normal(3, 4)), normal(2, 3)

        def attend(function, q, k, v, slopes, bias):
            mod = lambda score, b, h, q, k: score + slopes[h] * (k - q) * bias[b]
            return function(q, k, v, mod, lambda b, h, q, k: (q >= k) | (b == 1))

        ours = functools.partial(attend, flex_attention)
        theirs = functools.partial(attend, lambda *args: by_definition(*args)[0])
        for axes in ((0, 0, 0, 0, 1), (0, None, None, None, None), (None, None, None, 0, 1), (0, 0, 0, None, 1)):
            args = [
                x if axis is not None else (x[0] if place < 4 else x[:, 0])
                for place, (x, axis) in enumerate(zip((q, k, v, slopes, bias), axes))
            ]
            with self.subTest(axes=axes):
                self.assert_close(*(jax.jit(jax.vmap(f, axes))(*args) for f in (ours, theirs)))
                losses = [lambda *x, f=f: (jax.vmap(f, axes)(*x) ** 2).sum() for f in (ours, theirs)]
                found, expected = (jax.jit(jax.grad(loss, (0, 1, 2, 3, 4)))(*args) for loss in losses)
                self.assert_close(found, expected, factor=4)
                each = [lambda *x, f=f: (f(*x) ** 2).sum() for f in (ours, theirs)]
                found, expected = (jax.jit(jax.vmap(jax.grad(loss, (0, 3, 4)), axes))(*args) for loss in each)
                self.assert_close(found, expected, factor=4)
        twice = [jax.vmap(jax.vmap(f, (0, None, None, None, None)), (None, None, None, 0, 1)) for f in (ours, theirs)]
        self.assert_close(*(jax.jit(f)(q, k[0], v[0], slopes, bias) for f in twice))

    def test_checkpoint_and_scan(self):
        q, k, v = operands()
        slopes = abs(normal(3, 4))

        def model(function, q, slopes):
            @jax.checkpoint
            def layer(x, slopes):
                return function(x, k, v[:, :, :, : x.shape[3]], alibi(slopes), causal) + x, None

            return (lax.scan(layer, q, slopes)[0] ** 2).sum()

        gradients = [
            jax.jit(jax.grad(functools.partial(model, f), (0, 1)))(q, slopes)
            for f in (flex_attention, lambda *args: by_definition(*args)[0])
        ]
        self.assert_close(*gradients, factor=4)

    def test_shard_map(self):
        """Over two devices of the CPU, by batch; a replicated capture gets the sum of its gradients."""
        mesh = Mesh(np.array(jax.devices("cpu")[:2]), ("data",))
        by_batch, everywhere = PartitionSpec("data"), PartitionSpec()
        with jax.default_device(jax.devices("cpu")[0]), warnings.catch_warnings():
            warnings.simplefilter("ignore", attnc.CpuWarning)
            q, k, v = operands(batch=4)
            slopes, lengths = abs(normal(4)), jnp.asarray([41, 3, 20, 7])

            def attend(function, q, k, v, slopes, lengths):
                return function(q, k, v, alibi(slopes), lambda b, h, q, k: k < lengths[b])

            sharded = jax.shard_map(
                functools.partial(attend, flex_attention), mesh=mesh,
                in_specs=(by_batch, by_batch, by_batch, everywhere, by_batch), out_specs=by_batch,
            )  # fmt: skip
            theirs = functools.partial(attend, lambda *args: by_definition(*args)[0])
            args = q, k, v, slopes, lengths
            self.assert_close(jax.jit(sharded)(*args), jax.jit(theirs)(*args))
            gradients = [
                jax.jit(jax.grad(lambda *x, f=f: (f(*x) ** 2).sum(), (0, 1, 2, 3)))(*args) for f in (sharded, theirs)
            ]
            self.assert_close(*gradients, factor=4)

    def test_programs_are_found_again(self):
        """Equal mods make no new program, and numbers of captured arrays are none of its parts."""
        q, k, v = operands()
        attend = lambda slopes: flex_attention(q, k, v, alibi(slopes), causal)
        attend(normal(4))
        with unittest.mock.patch.object(calls, "_joined", side_effect=AssertionError("lowered again")):
            attend(normal(4, seed=3))
            with self.assertRaises(AssertionError):
                flex_attention(q, k, v, lambda score, b, h, q, k: score + 0.37)

    def test_programs_for_gpus(self):
        """Lowering for a GPU that is not here. Documents need lists of blocks, in a workspace."""
        shape = jax.ShapeDtypeStruct((1, 4, 2048, 64), jnp.bfloat16)
        documents = jnp.arange(2048) // 300

        def loss(q, k, v, slopes):
            out = flex_attention(q, k, v, alibi(slopes), lambda b, h, q, k: documents[q] == documents[k])
            return out.astype(jnp.float32).sum()

        slopes = jax.ShapeDtypeStruct((4,), jnp.float32)
        with unittest.mock.patch.object(calls, "_arch", return_value="sm_90a"):
            traced = jax.jit(jax.grad(loss, (0, 1, 2, 3))).trace(shape, shape, shape, slopes)
            text = traced.lower(lowering_platforms=("cuda",)).as_text()
        for target in ("@attnc_attention(", "@attnc_attention_backward("):
            line = next(line for line in text.splitlines() if target in line)
            self.assertRegex(line, r"-> .*tensor<[0-9]+xui8>")

    def test_changed_captures(self):
        """A method whose object changes between calls."""
        q, k, v = operands()

        class Bias:
            weight = 1.0

            def mod(self, score, b, h, q, k):
                return score * self.weight

        bias = Bias()
        for weight in (2.0, jnp.float32(3)):
            bias.weight = weight
            self.assert_close(flex_attention(q, k, v, bias.mod), by_definition(q, k, v, bias.mod)[0])


class Refusals(unittest.TestCase):
    def refused(self, kind, text, *args, **options):
        q, k, v = operands()
        with self.assertRaisesRegex(kind, text):
            flex_attention(*(args[:3] if len(args) >= 3 else (q, k, v)), *args[3:], **options)

    def refused_mod(self, kind, text, score_mod, mask_mod=None):
        with self.assertRaisesRegex(kind, text):
            flex_attention(*operands(), score_mod, mask_mod)

    def test_operands(self):
        q, k, v = operands()
        self.refused(ValueError, r"query has 3 axes; it must be \[B, H, L, E\]", q[0], k, v)
        self.refused(ValueError, "value is float16, query float32: make them alike", q, k, v.astype("float16"))
        self.refused(ValueError, "query is int32; attnc computes bfloat16", q.astype("int32"), k, v)
        self.refused(ValueError, "query has 4 heads, key 2: set enable_gqa=True", q, k[:, :2], v[:, :2])
        self.refused(ValueError, "no multiple of the 3", q, k[:, :3], v[:, :3], enable_gqa=True)
        self.refused(ValueError, "query has batch 2, key 1", q, k[:1], v[:1])
        self.refused(ValueError, "query has 16 columns, key 8", q, k[..., :8], v)
        self.refused(ValueError, "must be equal up to the last axis", q, k, v[:, :, :8])
        mask = create_block_mask(causal, None, None, 37, 40)
        self.refused(ValueError, "block_mask is of 37 queries and 40 keys", q, k, v, None, mask)
        told = "block_mask is of heads 3, query has .: create one for .* if mask_mod does not depend on h"
        self.refused(ValueError, told, q, k, v, None, create_block_mask(causal, 1, 3, 37, 41))
        self.refused(TypeError, "block_mask is ArrayImpl: give a mask_mod", q, k, v, None, jnp.ones((37, 41), bool))
        fits = create_block_mask(causal, None, None, 37, 41)
        np.testing.assert_array_equal(flex_attention(q, k, v, None, fits), flex_attention(q, k, v, None, causal))

    def test_mods(self):
        here = f"{pathlib.Path(__file__).name}:[0-9]+: "
        self.refused_mod(
            UntranslatableError, f"{here}score_mod uses sort, which attnc cannot translate. Compute it outside",
            lambda score, b, h, q, k: score + jnp.sort(jnp.arange(5.0))[q % 5],
        )  # fmt: skip
        self.refused_mod(
            UntranslatableError, f"{here}mask_mod uses lax.while_loop or lax.fori_loop, which", None,
            lambda b, h, q, k: lax.while_loop(lambda x: x < q, lambda x: x + 3, k) > 7,
        )  # fmt: skip
        self.refused_mod(
            UntranslatableError, f"{here}score_mod uses lax.scan or lax.fori_loop of 100 rounds. At most 64 are",
            lambda score, *_: lax.fori_loop(0, 100, lambda _, x: x + 1, score),
        )  # fmt: skip
        table = jnp.arange(50, dtype=jnp.uint32)
        self.refused_mod(
            UntranslatableError, r"captures `table`, an array of uint32.*table\.astype\(jnp\.int32\)",
            lambda score, b, h, q, k: score + table[q].astype(jnp.float32),
        )  # fmt: skip
        self.refused_mod(UntranslatableError, r"\d: error: .* this is an array of shape \(3,\)", lambda s, *_: s + jnp.arange(3.0))
        self.refused_mod(UntranslatableError, r"\d: error: `score_mod` returns a tuple", lambda s, *_: (s, s))
        self.refused_mod(UntranslatableError, r"\d: error: `mask_mod` returns an int", None, lambda b, h, q, k: q - k)
        short = jnp.arange(36)
        self.refused_mod(
            IndexError, "reads `short` at q_idx, which reaches 36", lambda s, b, h, q, k: s + short[q]
        )  # fmt: skip

    def test_numbers_of_traced_values(self):
        here, numbers = f"{pathlib.Path(__file__).name}:[0-9]+:", np.arange(4.0)
        for told, mod in (
            ("error: Python decides a condition", lambda s, b, h, q, k: s if q > k else -s),
            ("error: `float` needs a number", lambda s, b, h, q, k: s + float(q)),
            ("error: `numpy` has no `where`", lambda s, b, h, q, k: np.where(q > k, s, -1e9)),
            ("error: a list is known only to the compiler", lambda s, b, h, q, k: s + [1.0, 2.0, 3.0, 4.0][h]),
            ("error: an array of NumPy is known only to the compiler", lambda s, b, h, q, k: s + numbers[h]),
        ):
            self.refused_mod(UntranslatableError, f"{here}.*{told}", mod)
        self.refused_mod(
            UntranslatableError, f"{here}.*error: Python decides", None, lambda b, h, q, k: q >= k and k > 2
        )
        with self.assertRaises(UntranslatableError) as caught:
            flex_attention(*operands(), lambda s, b, h, q, k: s if q > k else -s)
        self.assertIs(type(caught.exception), UntranslatableError)
        self.assertIsInstance(caught.exception.__cause__, jax.errors.TracerBoolConversionError)
        with self.assertRaisesRegex(TypeError, "scale is traced: give a Python number"):
            jax.jit(lambda scale: flex_attention(*operands(), scale=scale))(0.5)

    def test_doubles(self):
        table = np.arange(4.0)
        with jax.enable_x64(True):
            for mod in (
                lambda s, b, h, q, k: s + jnp.float64(1),
                lambda s, b, h, q, k: s + jnp.arange(4.0)[h],
            ):
                self.refused_mod(UntranslatableError, "in float64: compute with arrays of float32", mod)
            self.refused_mod(
                UntranslatableError, "`captured`, an array of float64.*float32",
                lambda s, b, h, q, k: s + jnp.asarray(table)[h],
            )  # fmt: skip

    @unittest.skipUnless(jax.default_backend() == "cpu", "the kernels compute")
    def test_the_notice_of_the_cpu(self):
        from attnc import _cpu_notice

        with unittest.mock.patch.object(_cpu_notice, "_is_told", False), warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            jax.jit(flex_attention).lower(*[jax.ShapeDtypeStruct((1, 8, 1024, 64), jnp.float32)] * 3)
        self.assertEqual([x.category for x in told], [attnc.CpuWarning])
        self.assertEqual(pathlib.Path(told[0].filename).name, pathlib.Path(__file__).name)


if __name__ == "__main__":
    print(f"jax {jax.__version__} on {jax.default_backend()}")
    unittest.main()
