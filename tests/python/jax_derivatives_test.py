#!/usr/bin/env python3
"""Compares second derivatives and forward mode of attention in JAX with those of the definition.

  ATTNC_LIBRARY=libattnc.so python3 jax_derivatives_test.py [-v ...]

Prints SKIPPED if jax is not installed.
"""

import functools
import unittest
import unittest.mock
import warnings

import needs

needs.modules("jax")
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec
import jax_test
from jax_test import alibi, by_definition, causal, normal, operands

import attnc
from attnc.jax import calls, flex_attention


def mod_of(bias, slopes):
    return lambda s, b, h, q, k: 5 * jnp.tanh(s / 5) + bias[b, q - k + 8] * s + jnp.sin(s * slopes[h])


def mask(b, h, q, k):
    return (k <= q + 2) & (q % 3 != 1)  # there are rows without scores


class DerivativesTest(jax_test.Compared):
    def setUp(self):
        self.args = *operands(2, 4, 7, 9, 8, 2, 16), normal(2, 18), normal(4)
        self.along = tuple(normal(*x.shape, seed=20 + place) for place, x in enumerate(self.args))
        self.weight = normal(2, 4, 7, 16, seed=8), normal(2, 4, 7, seed=9)
        self.all = tuple(range(5))

    def both(self, derive, factor=8):
        ours = lambda q, k, v, *captured: flex_attention(
            q, k, v, mod_of(*captured), mask, enable_gqa=True, return_lse=True
        )
        theirs = lambda q, k, v, *captured: by_definition(q, k, v, mod_of(*captured), mask)
        finite = lambda f: lambda *args: (lambda out, lse: (out, jnp.where(jnp.isfinite(lse), lse, 0)))(*f(*args))
        self.assert_close(*(jax.jit(functools.partial(derive, finite(f)))(*self.args) for f in (ours, theirs)), factor=factor)

    def loss(self, f):
        return lambda *args: sum((x * w * (1 + x / 2)).sum() for x, w in zip(f(*args), self.weight))

    def test_forward_mode(self):
        self.both(lambda f, *args: jax.jvp(f, args, self.along))
        self.both(lambda f, *args: jax.linearize(f, *args)[1](*self.along))
        self.both(lambda f, *args: jax.jvp(lambda k: f(args[0], k, *args[2:]), args[1:2], self.along[1:2]))
        ours = jax.jvp(lambda q: flex_attention(q, *self.args[1:3], enable_gqa=True), self.args[:1], self.along[:1])  # no jit
        self.assert_close(ours, jax.jvp(lambda q: by_definition(q, *self.args[1:3])[0], self.args[:1], self.along[:1]), factor=8)

    def test_orders_of_two_modes(self):
        along = lambda f, args: jax.jvp(f, args, self.along)[1]
        self.both(lambda f, *args: along(jax.grad(self.loss(f), self.all), args))
        self.both(lambda f, *args: jax.grad(self.loss(lambda *args: along(f, args)), self.all)(*args))
        inner = lambda f, places: lambda *args: sum(
            (x * self.along[place]).sum() for place, x in zip(places, jax.grad(self.loss(f), places)(*args))
        )
        self.both(lambda f, *args: jax.grad(inner(f, self.all), self.all)(*args))
        self.both(lambda f, *args: jax.grad(inner(f, (0,)), (1, 4))(*args))
        of_out = lambda f: lambda q: (f(q, *self.args[1:])[0] ** 2).sum()  # lse has no gradient
        self.both(lambda f, q, *_: jax.jvp(jax.grad(of_out(f)), (q,), self.along[:1]))

    def test_hessians_and_vmap(self):
        of_slopes = lambda f, *args: lambda slopes: self.loss(f)(*args[:4], slopes)
        for hessian in (jax.hessian, lambda f: jax.jacrev(jax.jacfwd(f))):
            self.both(lambda f, *args: hessian(of_slopes(f, *args))(args[4]))
        two = [jnp.stack((x, y), 1) for x, y in zip(self.args, self.along)]

        def product(f, q, k, v, bias, slopes):
            return jax.jvp(jax.grad(lambda q, bias: self.loss(f)(q, k, v, bias, slopes), (0, 1)), (q, bias), (q, bias / 2))[1]

        self.both(lambda f, *args: jax.vmap(functools.partial(product, f), (1, None, None, 1, None))(two[0], *args[1:3], two[3], args[4]))
        # Only the direction of a capture is mapped.
        self.both(lambda f, *args: jax.vmap(lambda d: jax.jvp(lambda b: f(*args[:3], b, args[4]), args[3:4], (d,))[1], 1)(two[3]))

    def test_checkpoint_and_scan(self):
        def penalty(f, *args):
            step = jax.checkpoint(lambda q, _: (f(q, *args[1:])[0][..., :8] + q, None))
            loss = lambda q: (jax.lax.scan(step, q, None, length=2)[0] ** 2).sum()
            return (jax.grad(loss)(args[0]) ** 2).mean()

        self.both(lambda f, *args: jax.grad(functools.partial(penalty, f), (0, 3))(*args), factor=20)

    def test_shard_map(self):
        mesh, by_batch, everywhere = Mesh(np.array(jax.devices("cpu")[:2]), ("data",)), PartitionSpec("data"), PartitionSpec()
        q, k, v = operands(batch=4, q_len=8, kv_len=8, head_dim=8)
        with jax.default_device(jax.devices("cpu")[0]), warnings.catch_warnings():
            warnings.simplefilter("ignore", attnc.CpuWarning)
            attend = lambda f, q, k, v, slopes: f(q, k, v, alibi(slopes), causal)
            theirs = functools.partial(attend, lambda *args: by_definition(*args)[0])
            sharded = jax.shard_map(
                functools.partial(attend, flex_attention), mesh=mesh, in_specs=(*[by_batch] * 3, everywhere),
                out_specs=by_batch,
            )  # fmt: skip
            args = q, k, v, normal(4)
            for derive in (
                lambda f: jax.grad(lambda *x: (jax.grad(lambda *x: (f(*x) ** 2).sum(), 0)(*x) ** 2).sum(), (0, 3)),
                lambda f: lambda *x: jax.jvp(f, x, x),
            ):  # fmt: skip
                self.assert_close(*(jax.jit(derive(f))(*args) for f in (sharded, theirs)), factor=8)

    def test_prob_mods(self):
        q, k, v = operands(q_len=8, kv_len=8, head_dim=8)
        drop = jax_test.BehindTheSoftmax.drop_by(jnp.int32(5))
        ours, theirs = (lambda q: flex_attention(q, k, v, prob_mod=drop)), (lambda q: jax_test.BehindTheSoftmax.dropped(q, k, v, drop))
        self.assert_close(*(jax.jvp(jax.grad(lambda q, f=f: (f(q) ** 2).sum()), (q,), (q,)) for f in (ours, theirs)), factor=8)
        gated = lambda gate: flex_attention(q, k, v, prob_mod=lambda p, b, h, q, k: p * gate[k])
        for derive in (lambda: jax.jvp(gated, (normal(8),), (normal(8),)), lambda: jax.grad(lambda g: gated(g).sum())(normal(8))):
            with self.assertRaisesRegex(NotImplementedError, "gate has no gradient and no tangent: prob_mod reads it"):
                derive()

    def test_computes_no_gradient_that_nobody_wants(self):
        q, k, v = operands(q_len=8, kv_len=8, head_dim=8)
        loss = lambda q, slopes: (flex_attention(q, k, v, alibi(slopes)) ** 2).sum()
        text = str(jax.make_jaxpr(jax.grad(loss))(q, normal(4)))
        self.assertIn("wanted=()", text)
        self.assertNotIn("tangents", text)
        self.assertIn("wanted=(0,)", str(jax.make_jaxpr(jax.grad(loss, 1))(q, normal(4))))
        self.assertIn("moved=(0,)", str(jax.make_jaxpr(lambda q, s: jax.jvp(lambda q: loss(q, s), (q,), (q,)))(q, normal(4))))

    def test_programs_for_gpus(self):
        shape, slopes = jax.ShapeDtypeStruct((1, 4, 256, 64), jnp.bfloat16), jax.ShapeDtypeStruct((4,), jnp.float32)
        of = lambda q, slopes: flex_attention(q, q, q, alibi(slopes), causal).astype(jnp.float32).sum()
        hvp = lambda q, slopes: jax.jvp(jax.grad(of, (0, 1)), (q, slopes), (q, slopes))
        with unittest.mock.patch.object(calls, "_arch", return_value="sm_90a"):
            text = jax.jit(hvp).trace(shape, slopes).lower(lowering_platforms=("cuda",)).as_text()
        line = next(line for line in text.splitlines() if "@attnc_attention_backward_tangents(" in line)
        self.assertRegex(line, r"slopes_tangent.*tangents = .*-> .*tensor<[0-9]+xui8>")

    def test_refusals(self):
        q, k, v = operands(q_len=8, kv_len=8, head_dim=8)
        f = lambda q: (flex_attention(q, k, v) ** 2).sum()
        twice = jax.grad(lambda q: (jax.grad(f)(q) ** 2).sum())
        for derive in (lambda: jax.grad(lambda q: (twice(q) ** 2).sum())(q), lambda: jax.jvp(twice, (q,), (q,))):
            with self.assertRaisesRegex(NotImplementedError, "no third derivatives .*jax.nn"):
                derive()
        tangent = lambda q: jax.jvp(f, (q,), (q,))[1]
        for derive in (lambda: jax.jvp(tangent, (q,), (q,)), lambda: jax.jit(lambda q: jax.jvp(tangent, (q,), (q,)))(q)):
            with self.assertRaisesRegex(NotImplementedError, "no tangents of tangents.*jax.jvp of jax.grad"):
                derive()


if __name__ == "__main__":
    print(f"jax {jax.__version__} on {jax.default_backend()}")
    unittest.main()
