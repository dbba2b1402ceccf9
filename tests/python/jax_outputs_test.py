#!/usr/bin/env python3
"""Compares outputs of mods in JAX, sums and maxima over live scores, and gradients of the sums, with those of a matrix of
weights.

  ATTNC_LIBRARY=libattnc.so python3 jax_outputs_test.py [-v ...]

Prints SKIPPED if jax is not installed.
"""

import functools
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


def matrices(q, k, slopes, sinks=None):
    """Returns scores, those that are masked as -inf, weights, and lse, which is 0 of rows without scores."""
    k = jnp.repeat(k, q.shape[1] // k.shape[1], axis=1)
    score = jnp.einsum("bhqd,bhkd->bhqk", q, k) * q.shape[-1] ** -0.5
    score = at_all(alibi(slopes), score.shape, score)
    is_live = jnp.broadcast_to(at_all(live, score.shape), score.shape)
    terms = jnp.where(is_live, jnp.exp(score), 0)
    total = terms.sum(-1, keepdims=True) + (0 if sinks is None else jnp.exp(sinks)[:, None, None])
    lse = jnp.log(jnp.where(total > 0, total, 1))
    return jnp.where(is_live, score, -jnp.inf), jnp.where(is_live, jnp.exp(score - lse), 0), lse[..., 0]


def defined(q, k, slopes, far):
    """Returns these outputs by their names."""
    score, prob, _ = matrices(q, k, slopes)
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

    def test_next_to_a_prob_mod_in_two_walks(self):
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


def surprise(prob, score, b, h, q_idx, kv_idx):
    return jnp.where(prob > 0, -prob * jnp.log(prob), 0.0)


class GradientsTest(jax_test.Compared):
    """Gradients of losses that read outputs, against those of matrices in fp64."""

    def setUp(self):
        self.q, self.k, self.v = operands(2, 4, 9, 11, 8, 2)
        self.slopes, self.far, self.sinks = normal(4), normal(2, 11), normal(4, seed=3)
        self.args = self.q, self.k, self.v, self.slopes, self.far
        shapes = {"out": (2, 4, 9, 8), "lse": (2, 4, 9), "sums": (2, 4, 11), "entropy": (2, 4, 9), "mass": (2, 4)}
        self.weights = {name: normal(*shape, seed=20 + place) for place, (name, shape) in enumerate(shapes.items())}

    def results(self, q, k, v, slopes, far, sinks=None, **more):
        def mass(prob, score, b, h, q, k):
            return (prob * far[b, k] + 0.01 * score * score) * (q >= 3)

        outputs = {
            "entropy": attnc.reduce_sum(surprise, "B H Q_LEN"), "top": attnc.reduce_max(logit, "B H"),
            "sums": attnc.reduce_sum(weight, "B H KV_LEN"), "mass": attnc.reduce_sum(mass, "B H"),
        }  # fmt: skip
        sink_mod = None if sinks is None else lambda b, h, q_idx: sinks[h]
        out, aux = flex_attention(
            q, k, v, alibi(slopes), live, enable_gqa=True, outputs=outputs, return_lse=True, sink_mod=sink_mod, **more
        )
        has_lse = jnp.isfinite(aux.lse)
        return {"out": out, **aux._asdict(), "lse": jnp.where(has_lse, aux.lse, 0)}

    @staticmethod
    def defined(q, k, v, slopes, far, sinks=None, factor=1):
        score, prob, lse = matrices(q, k, slopes, sinks)
        finite, late = jnp.where(prob > 0, score, 0), (jnp.arange(q.shape[2]) >= 3)[:, None]
        return {
            "out": (prob * factor) @ jnp.repeat(v, q.shape[1] // v.shape[1], axis=1), "lse": lse, "sums": prob.sum(2),
            "entropy": -(prob * jnp.log(jnp.where(prob > 0, prob, 1))).sum(-1),
            "mass": ((prob * far[:, None, None] + 0.01 * finite * finite * (prob > 0)) * late).sum((2, 3)),
        }  # fmt: skip

    def loss(self, results, read, **more):
        return lambda *args: (lambda found: sum((found[name] * self.weights[name]).sum() for name in read))(results(*args, **more))

    def expected(self, read, args, **more):
        """Returns the gradients of matrices, in fp64."""
        with jax.enable_x64(True):
            exact = [x.astype(jnp.float64) for x in args]
            return jax.jit(jax.grad(self.loss(self.defined, read, **more), [*range(len(args))]))(*exact)

    def test_of_each_output_and_of_all(self):
        for read in (["sums"], ["entropy"], ["mass"], ["out", "sums"], [*self.weights]):
            args = *self.args, *([self.sinks] if len(read) > 1 else [])
            with self.subTest(read=read):
                found = jax.jit(jax.grad(self.loss(self.results, read), [*range(len(args))]))(*args)
                self.assert_close(found, self.expected(read, args), factor=4)

    def test_without_jit_by_vjp_and_with_a_prob_mod(self):
        read, thinned = [*self.weights], lambda p, b, h, q, k: p * (k % 3)
        found = jax.grad(self.loss(self.results, read, prob_mod=thinned), (0, 1, 2, 3, 4))(*self.args)
        self.assert_close(found, self.expected(read, self.args, factor=jnp.arange(11) % 3), factor=4)
        squared = jax.grad(self.loss(self.results, ["sums"], prob_mod=lambda p, b, h, q, k: p * p), (0, 1, 2, 3, 4))(*self.args)
        self.assert_close(squared, self.expected(["sums"], self.args), factor=4)
        results, pull = jax.vjp(lambda *args: self.results(*args)["sums"], *self.args)
        self.assert_close(results, self.defined(*self.args)["sums"])
        self.assert_close(pull(self.weights["sums"]), self.expected(["sums"], self.args), factor=4)

    def test_halves(self):
        half = [x.astype(jnp.bfloat16) for x in self.args[:3]]
        args = *(x.astype(jnp.float32) for x in half), *self.args[3:]
        found = jax.grad(self.loss(self.results, ["out", "entropy"]), (0, 1, 2, 3))(*half, *self.args[3:])
        self.assertEqual({x.dtype for x in found[:3]}, {jnp.dtype("bfloat16")})
        self.assert_close(found, self.expected(["out", "entropy"], args)[:4], "bfloat16", 2)

    def test_in_one_backward_pass(self):
        def passes(read):
            text = str(jax.make_jaxpr(jax.grad(self.loss(self.results, read)))(*self.args))
            return text.count("attnc_attention_backward["), "tangent" in text

        self.assertEqual([passes(["out", "lse"]), passes([*self.weights]), passes(["sums"])], [(1, False)] * 3)
        without = lambda q: flex_attention(q, *self.args[1:3], alibi(self.slopes), live, enable_gqa=True).sum()
        texts = [jax.jit(jax.grad(f)).lower(self.q).as_text() for f in (without, lambda q: self.results(q, *self.args[1:])["out"].sum())]
        self.assertEqual(*(next(x for x in text.splitlines() if "@attnc_attention_backward(" in x).split("mod = ")[1] for text in texts))

    def test_vmap(self):
        two = [jnp.stack([x, 1.5 * x]) for x in self.args]
        for axes in ((0, 0, 0, 0, 0), (0, None, None, None, None), (None, None, None, None, 0)):
            args = [x if axis == 0 else x[0] for x, axis in zip(two, axes)]
            for places in ((0, 3), (1, 4)):
                with self.subTest(axes=axes, places=places):
                    each = jax.vmap(jax.grad(self.loss(self.results, [*self.weights]), places), axes)
                    alone = [x[1] if axis == 0 else x for x, axis in zip(args, axes)]
                    expected = self.expected([*self.weights], alone)
                    self.assert_close([x[1] for x in jax.jit(each)(*args)], [expected[place] for place in places], factor=4)

    def test_shard_map(self):
        mesh, by_batch, everywhere = Mesh(np.array(jax.devices("cpu")[:2]), ("data",)), PartitionSpec("data"), PartitionSpec()
        with jax.default_device(jax.devices("cpu")[0]), warnings.catch_warnings():
            warnings.simplefilter("ignore", attnc.CpuWarning)
            specs = by_batch, by_batch, by_batch, everywhere, by_batch
            sharded = jax.shard_map(self.results, mesh=mesh, in_specs=specs, out_specs=by_batch)
            found = jax.jit(jax.grad(self.loss(sharded, [*self.weights]), (0, 1, 2, 3, 4)))(*self.args)
            self.assert_close(found, self.expected([*self.weights], self.args), factor=4)

    def test_layers_that_scan_and_checkpoint(self):
        def loss(results, args):
            def layer(q, _):
                found = results(q, *args[1:])
                return jnp.tanh(found["out"]) + q, (found["entropy"], found["top"] if "top" in found else 0)

            q, (entropy, tops) = jax.lax.scan(jax.checkpoint(layer), args[0], None, length=2)
            return (q * self.weights["out"]).sum() + (entropy * self.weights["entropy"]).sum(), tops

        with jax.enable_x64(True):
            (expected, _), gradients = jax.value_and_grad(functools.partial(loss, self.defined), has_aux=True)(
                [x.astype(jnp.float64) for x in self.args]
            )
        (found, tops), ours = jax.jit(jax.value_and_grad(functools.partial(loss, self.results), has_aux=True))([*self.args])
        self.assert_close([found, *ours], [expected, *gradients], factor=8)
        self.assertEqual(tops.shape, (2, 2, 4))

    def test_second_derivatives_of_what_reads_no_output(self):
        looked_at = lambda results: lambda q, far: ((lambda out: (out**2).sum())(results(q, *self.args[1:4], far)["out"]))
        for derive in (
            lambda f: jax.grad(lambda q: (jax.grad(f)(q, self.far) ** 2).sum()),
            lambda f: jax.jit(lambda q: jax.jvp(jax.grad(f, (0, 1)), (q, self.far), (q, self.far))[1]),
            lambda f: jax.jit(lambda q: jax.jvp(f, (q, self.far), (q, self.far))[1]),
            lambda f: jax.jit(jax.grad(lambda q: jax.jvp(f, (q, self.far), (q, self.far))[1])),
        ):
            self.assert_close(*(derive(looked_at(results))(self.q) for results in (self.results, self.defined)), factor=8)

    def test_captures_with_the_name_of_a_gradient(self):
        sums_gradient = self.slopes
        outputs = {"sums": attnc.reduce_sum(weight, "B H KV_LEN")}

        def total(q, sums_gradient):
            mod = lambda score, b, h, q, k: score + sums_gradient[h] * (k - q)
            return (flex_attention(q, *self.args[1:3], mod, live, enable_gqa=True, outputs=outputs)[1].sums * self.weights["sums"]).sum()

        expected = self.expected(["sums"], self.args)
        self.assert_close(jax.grad(total, (0, 1))(self.q, sums_gradient), (expected[0], expected[3]), factor=4)

    def test_refusals(self):
        of = lambda name: lambda *args: self.results(*args)[name].sum()
        total, top = of("sums"), of("top")
        for place in (1, 3):
            for transform in (lambda f: f, lambda f: jax.jit(jax.checkpoint(f)), jax.jit):
                with self.assertRaisesRegex(NotImplementedError, "a maximum has no gradient: take the loss of a sum, or apply jax.lax.stop"):
                    jax.grad(transform(top), place)(*self.args)
        with self.assertRaisesRegex(NotImplementedError, "a maximum has no gradient"):
            jax.vmap(jax.grad(lambda q: top(q, *self.args[1:])))(jnp.stack([self.q, self.q]))
        self.assertEqual(jnp.abs(jax.grad(top, 2)(*self.args)).max(), 0)  # which no score reads
        stopped = lambda q: jax.lax.stop_gradient(self.results(q, *self.args[1:])["top"]).sum()
        np.testing.assert_array_equal(jax.grad(stopped)(self.q), 0)
        along = lambda f: lambda q: jax.jvp(lambda q: f(q, *self.args[1:]), (q,), (q,))[1]
        for derive in (jax.jit(along(total)), along(top)):
            with self.assertRaisesRegex(NotImplementedError, "outputs of a mod have gradients and no tangents: apply jax.lax.stop"):
                derive(self.q)
        of_q = lambda q: total(q, *self.args[1:])
        for derive in (
            jax.grad(lambda q: (jax.grad(of_q)(q) ** 2).sum()), lambda q: jax.jvp(jax.grad(of_q), (q,), (q,)), jax.jit(jax.hessian(of_q)),
            jax.grad(lambda q: jax.jvp(of_q, (q,), (q,))[1]),
        ):  # fmt: skip
            with self.assertRaisesRegex(NotImplementedError, "of outputs of a mod are not differentiated again: apply|no tangents"):
                derive(self.q)

    def test_programs_for_gpus(self):
        shapes = [jax.ShapeDtypeStruct(x.shape, jnp.bfloat16 if x.ndim == 4 else x.dtype) for x in self.args]
        with unittest.mock.patch.object(calls, "_arch", return_value="sm_90a"):
            step = jax.jit(jax.grad(self.loss(self.results, [*self.weights]), (0, 3)))
            text = step.trace(*shapes).lower(lowering_platforms=("cuda",)).as_text()
        line = next(line for line in text.splitlines() if "@attnc_attention_backward(" in line)
        self.assertIn('captures = "mass_gradient sums_gradient entropy_gradient slopes far "', line)
        self.assertRegex(line.split("->")[-1], r"tensor<[0-9]+xui8>")


if __name__ == "__main__":
    unittest.main()
