#!/usr/bin/env python3
"""Compares outputs of mods in JAX, sums and maxima over live scores, with those of a matrix of weights.

  ATTNC_LIBRARY=libattnc.so python3 jax_outputs_test.py [-v ...]

Prints SKIPPED if jax is not installed.
"""

import re
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
from jax_test import alibi, at_all, normal, operands

import attnc
from attnc.jax import UntranslatableError, calls, flex_attention


def live(b, h, q, k):
    """Each third row sees nothing."""
    return (q >= k) & (q % 3 != 1)


def weight(prob, score, b, h, q_idx, kv_idx):
    return prob


def logit(prob, score, b, h, q_idx, kv_idx):
    return score


def of(far):
    """Returns outputs, one of which reads an array."""
    return {
        "sums": attnc.reduce_sum(weight, "B H KV_LEN"),
        "far": attnc.reduce_sum(lambda prob, score, b, h, q, k: prob * far[b, k] * (q >= 3), "B H Q_LEN"),
        "top": attnc.reduce_max(logit, "B H"),
    }


def defined(q, k, slopes, far):
    """Returns these outputs by their names."""
    k = jnp.repeat(k, q.shape[1] // k.shape[1], axis=1)
    score = jnp.einsum("bhqd,bhkd->bhqk", q, k).astype(jnp.float32) * q.shape[-1] ** -0.5
    score = at_all(alibi(slopes), score.shape, score)
    is_live = jnp.broadcast_to(at_all(live, score.shape), score.shape)
    score = jnp.where(is_live, score, -jnp.inf)
    prob = jnp.where(is_live, jnp.exp(score - jax.nn.logsumexp(score, -1, keepdims=True)), 0)
    late = jnp.arange(q.shape[2]) >= 3
    return {"sums": prob.sum(2), "far": (prob * far[:, None, None]).sum(-1) * late, "top": score.max((2, 3))}


class OutputsTest(jax_test.Compared):
    def setUp(self):
        self.q, self.k, self.v = operands(2, 4, 9, 11, 8, 2)
        self.slopes, self.far = normal(4), normal(2, 11)

    def attend(self, q, k, v, slopes, far, **more):
        return flex_attention(q, k, v, alibi(slopes), live, enable_gqa=True, outputs=of(far), **more)

    @property
    def args(self):
        return self.q, self.k, self.v, self.slopes, self.far

    def check(self, aux, expected):
        self.assertEqual({*aux._fields}, {"lse", *expected})
        for name, value in expected.items():
            self.assert_close(getattr(aux, name), value)

    def test_are_those_of_matrices(self):
        expected = defined(self.q, self.k, self.slopes, self.far)
        plain = flex_attention(*self.args[:3], alibi(self.slopes), live, enable_gqa=True, return_lse=True)
        for attend in (self.attend, jax.jit(self.attend)):
            out, aux = attend(*self.args)
            self.check(aux, expected)
            self.assertIsNone(aux.lse)
            np.testing.assert_array_equal(out, plain[0])
        np.testing.assert_array_equal(self.attend(*self.args, return_lse=True)[1].lse, plain[1])
        half = [x.astype(jnp.bfloat16) for x in self.args[:3]]
        self.check(self.attend(*half, self.slopes, self.far)[1], defined(*(x.astype(jnp.float32) for x in half[:2]), self.slopes, self.far))

    def test_next_to_a_prob_mod_in_two_launches(self):
        out, aux = self.attend(*self.args, prob_mod=lambda p, b, h, q, k: p * p)
        self.check(aux, defined(self.q, self.k, self.slopes, self.far))
        self.assertIsNone(aux.lse)
        self.assertGreater(jax_test.relative_error(out, self.attend(*self.args)[0]), 0.1)

    def test_gradients_of_out_are_as_without_them(self):
        without = lambda *args: flex_attention(*args[:3], alibi(args[3]), live, enable_gqa=True)
        loss = lambda f: lambda *args: (f(*args) ** 2).sum()
        found, expected = (
            jax.jit(jax.grad(loss(f), (0, 1, 2, 3)))(*self.args) for f in (lambda *args: self.attend(*args)[0], without)
        )
        self.assert_close(found, expected)
        looked_at = lambda *args: (lambda out, aux: ((out**2).sum(), aux))(*self.attend(*args))
        found, aux = jax.grad(looked_at, (0, 1, 2, 3), has_aux=True)(*self.args)
        self.assert_close(found, expected)
        self.check(aux, defined(self.q, self.k, self.slopes, self.far))
        ours = lambda q: jax.jvp(lambda q: self.attend(q, *self.args[1:])[0], (q,), (q,))
        theirs = lambda q: jax.jvp(lambda q: without(q, *self.args[1:]), (q,), (q,))
        self.assert_close(jax.jit(ours)(self.q), theirs(self.q))
        of_v = lambda v: self.attend(*self.args[:2], v, *self.args[3:])[1].sums
        np.testing.assert_array_equal(jax.jvp(of_v, (self.v,), (self.v,))[1], 0)  # which do not depend on v

    def test_refuse_to_be_zero_gradients(self):
        for place in (1, 4):
            for transform in (lambda f: f, lambda f: jax.jit(jax.checkpoint(f))):
                total = transform(lambda *args: self.attend(*args)[1].far.sum())
                with self.assertRaisesRegex(NotImplementedError, "have no gradients and no tangents: apply jax.lax.stop"):
                    jax.grad(total, place)(*self.args)
        with self.assertRaisesRegex(NotImplementedError, "no tangents"):
            jax.jit(lambda q: jax.jvp(lambda q: self.attend(q, *self.args[1:])[1].top, (q,), (q,)))(self.q)
        stopped = lambda q: jax.lax.stop_gradient(self.attend(q, *self.args[1:])[1].top).sum()
        np.testing.assert_array_equal(jax.grad(stopped)(self.q), 0)
        each = jax.vmap(jax.grad(lambda q: self.attend(q, *self.args[1:])[1].top.sum()))
        with self.assertRaisesRegex(NotImplementedError, "no tangents"):
            each(jnp.stack([self.q, self.q]))

    def test_vmap(self):
        two = [jnp.stack([x, 2 * x]) for x in self.args]
        for axes in ((0, 0, 0, 0, 0), (0, None, None, None, None), (None, None, None, None, 0)):
            args = [x if axis == 0 else x[0] for x, axis in zip(two, axes)]
            with self.subTest(axes=axes):
                _, aux = jax.jit(jax.vmap(self.attend, axes))(*args)
                self.check(aux, jax.vmap(lambda q, k, v, *others: defined(q, k, *others), axes)(*args))

    def test_shard_map(self):
        mesh, by_batch, everywhere = Mesh(np.array(jax.devices("cpu")[:2]), ("data",)), PartitionSpec("data"), PartitionSpec()
        with jax.default_device(jax.devices("cpu")[0]), warnings.catch_warnings():
            warnings.simplefilter("ignore", attnc.CpuWarning)
            specs = by_batch, by_batch, by_batch, everywhere, by_batch
            sharded = jax.shard_map(self.attend, mesh=mesh, in_specs=specs, out_specs=by_batch)
            self.check(jax.jit(sharded)(*self.args)[1], defined(self.q, self.k, self.slopes, self.far))

    def test_programs_for_gpus(self):
        """Lowering for a GPU that is not here: kernels of outputs need a workspace."""
        shapes = [jax.ShapeDtypeStruct(x.shape, jnp.bfloat16 if x.ndim == 4 else x.dtype) for x in self.args]

        def results(attend):
            with unittest.mock.patch.object(calls, "_arch", return_value="sm_90a"):
                text = jax.jit(attend).trace(*shapes).lower(lowering_platforms=("cuda",)).as_text()
            line = next(line for line in text.splitlines() if "@attnc_attention(" in line)
            return re.search(r'outputs = "([^"]*)"', line), re.findall(r"tensor<([0-9x]+)x(f32|ui8)>", line.split("->")[-1])

        names, types = results(self.attend)
        self.assertEqual(names[1], "top sums far ")
        self.assertEqual(types[:-1], [(shape, "f32") for shape in ("2x4x9", "2x4", "2x4x11", "2x4x9")])
        names, others = results(lambda *args: flex_attention(*args[:3], alibi(args[3]), live, enable_gqa=True))
        self.assertIsNone(names)
        self.assertEqual(others[:-1], types[:1])
        self.assertEqual({types[-1][1], others[-1][1]}, {"ui8"})
        self.assertGreater(int(types[-1][0]), int(others[-1][0]))

    def test_say_what_is_wrong(self):
        sums = attnc.reduce_sum(weight, "B H KV_LEN")
        for options, error, words in (
            ({"outputs": {"x": weight}}, TypeError, "output 'x' is a function: give attnc.reduce_sum"),
            ({"outputs": {"x": attnc.reduce_sum(weight)}}, ValueError, "output x is over None: give one of 'B H KV_LEN'"),
            ({"outputs": {"lse": sums}}, ValueError, "output lse has the name of a member of AuxOutput"),
            ({"outputs": {"x": attnc.reduce_sum(lambda prob: prob, "B H")}}, TypeError, "must take prob, score, b, h, q_idx"),
            ({"outputs": {"x": attnc.reduce_sum(lambda p, s, b, h, q, k: (p, s), "B H")}}, UntranslatableError, "returns a tuple"),
            ({"outputs": {"x": sums}, "weight_mod": lambda s, b, h, q, k: s}, ValueError, "outputs is of the softmax"),
        ):  # fmt: skip
            with self.subTest(words), self.assertRaisesRegex(error, words):
                flex_attention(*self.args[:3], enable_gqa=True, **options)


if __name__ == "__main__":
    unittest.main()
