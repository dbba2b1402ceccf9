#!/usr/bin/env python3
"""Checks weight_mod, weights in place of the softmax, in the doors of PyTorch and JAX: against sums by autograd in fp64.

  ATTNC_LIBRARY=libattnc.so python3 weights_test.py [-v ...]

Runs on the CPU. Takes torch, else jax; prints SKIPPED without both.
"""

import math
import sys
import unittest

import needs  # finds attnc

try:
    import torch
except ImportError:
    torch = None
try:
    import jax
except ImportError:
    jax = None
if torch is None and jax is None:
    sys.exit(print("SKIPPED: neither torch nor jax is installed"))
import attnc

B, H, HKV, L, D = 2, 4, 2, 21, 16


@unittest.skipIf(torch is None, "SKIPPED: torch is not installed")
class Torch(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(1)
        self.inputs = [torch.randn(B, heads, L, D, requires_grad=True) for heads in (H, HKV, HKV)]
        self.inputs.append(torch.randn(H, requires_grad=True))
        self.d_out = torch.randn(B, H, L, D).double()

    def weight_of(self, bias):
        return lambda score, b, h, q_idx, kv_idx: torch.sigmoid(score + bias[h] - math.log(L))

    def attend(self, q, k, v, bias):
        from attnc.torch import create_block_mask, flex_attention

        mask = create_block_mask(lambda b, h, q, k: (q >= k) & (q % 7 != 3), None, None, L, L, "cpu")
        soft = lambda score, b, h, q_idx, kv_idx: 2 * torch.tanh(score / 2)
        return flex_attention(q, k, v, soft, mask, enable_gqa=True, weight_mod=self.weight_of(bias))

    def wanted(self, q, k, v, bias):
        q, k, v, bias = (x.double() for x in (q, k, v, bias))
        k, v = (x.repeat_interleave(H // HKV, dim=1) for x in (k, v))
        weights = torch.sigmoid(2 * torch.tanh(q @ k.mT / D**0.5 / 2) + bias[:, None, None] - math.log(L))
        rows, columns = torch.arange(L)[:, None], torch.arange(L)
        return weights.masked_fill(~((rows >= columns) & (rows % 7 != 3)), 0.0) @ v

    def compare(self, attend):
        results = []
        for function in (attend, self.wanted):
            out = function(*self.inputs)
            results.append((out, *torch.autograd.grad((out.double() * self.d_out).sum(), self.inputs)))
        for is_, be in zip(*results):
            torch.testing.assert_close(is_.double(), be.double(), rtol=1e-5, atol=1e-5)

    def test_is_its_definition(self):
        self.compare(self.attend)
        self.compare(self.attend)  # which is like an earlier call

    def test_is_traced_in_graphs(self):
        self.compare(torch.compile(self.attend, backend="aot_eager", fullgraph=True))

    def test_a_prob_mod_of_any_form_is_its_definition(self):
        from attnc.torch import create_block_mask, flex_attention

        mask = create_block_mask(lambda b, h, q, k: q >= k, None, None, L, L, "cpu")
        prob_mods = (
            lambda c: lambda prob, b, h, q, k: prob * prob * torch.exp(c[h]) + torch.relu(prob - 0.02),
            lambda c: lambda prob, b, h, q, k: torch.where(prob > 0.03, torch.sqrt(prob + 0.1) * c[h], 0.0),
        )
        soft = lambda score, b, h, q, k: 3 * torch.tanh(score / 3)

        def wanted(prob_mod, sinks, q, k, v, c):
            q, k, v, c = (x.double() for x in (q, k, v, c))
            k, v = (x.repeat_interleave(H // HKV, dim=1) for x in (k, v))
            scores = (3 * torch.tanh(q @ k.mT / D**0.5 / 3)).masked_fill(~torch.ones(L, L).tril().bool(), -1e30)
            terms = torch.cat([scores, sinks * torch.ones(B, H, L, 1)], -1) if sinks else scores
            lse = terms.logsumexp(-1, keepdim=True)
            return prob_mod(c)((scores - lse).exp(), 0, torch.arange(H)[:, None, None], 0, 0) @ v, lse[..., 0]

        for prob_mod in prob_mods:
            for sinks in (0.0, 0.7):
                results = []
                for function in (
                    lambda q, k, v, c: flex_attention(
                        q, k, v, soft, mask, enable_gqa=True, return_lse=True, prob_mod=prob_mod(c),
                        sink_mod=(lambda b, h, q: sinks) if sinks else None,
                    ),
                    lambda q, k, v, c: wanted(prob_mod, sinks, q, k, v, c),
                ):  # fmt: skip
                    out, lse = function(*self.inputs)
                    loss = (out.double() * self.d_out).sum() + (lse * lse).sum()
                    results.append((out, lse, *torch.autograd.grad(loss, self.inputs)))
                for is_, be in zip(*results):
                    torch.testing.assert_close(is_.double(), be.double(), rtol=1e-5, atol=2e-5)

    def test_a_power_is_taken_by_what_it_is(self):
        from attnc.torch import flex_attention

        qkv = [x.detach() for x in self.inputs[:3]]
        power = lambda n: flex_attention(*qkv, enable_gqa=True, prob_mod=lambda prob, *at: prob**n)
        plain = flex_attention(*qkv, enable_gqa=True)
        torch.testing.assert_close(power(1), plain)
        self.assertGreater(float((power(2) - plain).abs().max()), 0.1)
        torch.testing.assert_close(power(1), plain)

    def test_scores_of_minus_infinity_weigh_nothing(self):
        from attnc.torch import create_block_mask, flex_attention

        q, k, v, _ = self.inputs
        pad = torch.where(torch.arange(L) < 5, -math.inf, 0.0)
        causal = create_block_mask(lambda b, h, q, k: q >= k, None, None, L, L, "cpu")  # rows 0 to 4 have no live score
        results = []
        for score_mod in (lambda s, b, h, q, k: s + pad[k], lambda s, b, h, q, k: torch.where(k < 5, -math.inf, s)):
            out = flex_attention(q, k, v, score_mod, causal, enable_gqa=True, prob_mod=lambda prob, *at: prob * prob + 0.1)
            results.append((out, *torch.autograd.grad(out.sum(), (q, k, v))))
        self.assertEqual(float(results[0][0][:, :, :5].abs().max()), 0.0)
        for one, other in zip(*results):
            self.assertFalse(one.isnan().any())
            torch.testing.assert_close(one, other)

    def test_scores_themselves_are_weights_in_graphs(self):
        from attnc.torch import flex_attention

        q, k, v = (x.detach() for x in self.inputs[:3])
        linear = lambda q, k, v: flex_attention(q, k, v, enable_gqa=True, weight_mod=lambda score, *at: score)
        expected = q @ k.repeat_interleave(2, 1).mT / D**0.5 @ v.repeat_interleave(2, 1)
        for attend in (linear, torch.compile(linear, backend="aot_eager", fullgraph=True)):
            torch.testing.assert_close(attend(q, k, v), expected, rtol=1e-4, atol=1e-4)

    def test_explain_tells_two_walks(self):
        from attnc.torch import explain

        q, k, v = (torch.empty(x.shape, dtype=torch.bfloat16) for x in self.inputs[:3])
        told = explain(q, k, v, enable_gqa=True, prob_mod=lambda prob, *at: prob * prob, arch="sm_90a")
        self.assertTrue(told["walksTwice"])
        told = explain(q, k, v, enable_gqa=True, prob_mod=lambda prob, *at: prob * 2, arch="sm_90a")
        self.assertNotIn("walksTwice", told)

    def test_a_text_walks_twice(self):
        qkv = [x.detach() for x in self.inputs[:3]]
        mod = attnc.Mod.parse("def prob_mod(prob, b, h, q_idx, kv_idx):\n    return torch.where(prob > 0.05, prob, 0.0)")
        self.assertTrue(mod.walks_twice and mod.has_prob_mod)
        out, lse = attnc.attention(mod, *qkv, return_lse=True)
        k, v = (x.double().repeat_interleave(H // HKV, dim=1) for x in qkv[1:])
        scores = qkv[0].double() @ k.mT / D**0.5
        prob = scores.softmax(-1)
        torch.testing.assert_close(out.double(), torch.where(prob > 0.05, prob, 0.0) @ v, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(lse.double(), scores.logsumexp(-1), rtol=1e-5, atol=1e-5)

    def test_ir_with_a_weight_and_what_is_of_the_softmax_is_refused(self):
        score, weight = "output score(score, b, h, q_idx, kv_idx) -> %score", "output is_weight() -> true"
        self.assertTrue(attnc.Mod.parse_ir(f"{score}\n{weight}\n").has_weight_mod)
        for lines in (
            [score, weight, "output sink(b, h, q_idx) -> 1.0"],
            [score, weight, "output reduce_sum_kv_x(prob, score, b, h, q_idx, kv_idx) -> %prob"],
            [score, "output is_weight() -> false"], ["output mask(b, h, q_idx, kv_idx) -> true", weight],
        ):  # fmt: skip
            with self.subTest(lines), self.assertRaisesRegex(attnc.ModError, "weight_mod takes the place of the softmax"):
                attnc.Mod.parse_ir("\n".join(lines) + "\n")

    def test_dropout_is_behind_a_prob_mod_of_any_form(self):
        from attnc.torch import flex_attention

        qkv = [x.detach() for x in self.inputs[:3]]
        attend = lambda **how: flex_attention(*qkv, enable_gqa=True, prob_mod=lambda prob, *at: prob * prob, **how)
        torch.manual_seed(3)
        drops = [attend(dropout_p=0.5) for _ in range(64)]
        self.assertLess(float((torch.stack(drops).mean(0) - attend()).norm() / attend().norm()), 0.2)
        self.assertFalse(torch.equal(drops[0], drops[1]))

    def test_a_graph_takes_a_prob_mod_of_any_form(self):
        from attnc.torch import flex_attention

        attend = lambda q, k, v: flex_attention(q, k, v, enable_gqa=True, prob_mod=lambda prob, *at: prob * prob)
        results = []
        for each in (attend, torch.compile(attend, backend="aot_eager", fullgraph=True)):
            out = each(*self.inputs[:3])
            results.append((out, *torch.autograd.grad(out.square().sum(), self.inputs[:3])))
        for is_, be in zip(*results):
            torch.testing.assert_close(is_, be)

    def test_what_is_of_the_softmax_is_refused(self):
        from attnc.torch import flex_attention

        weight_mod, qkv = self.weight_of(self.inputs[3]), self.inputs[:3]
        for name, kwargs in (
            ("lse", {"return_lse": True}), ("dropout_p", {"dropout_p": 0.1}),
            ("sink_mod", {"sink_mod": lambda b, h, q_idx: 0.0}), ("prob_mod", {"prob_mod": lambda prob, *at: prob / 2}),
        ):  # fmt: skip
            with self.subTest(name), self.assertRaisesRegex(ValueError, f"takes the place of the softmax, and {name}"):
                flex_attention(*qkv, enable_gqa=True, weight_mod=weight_mod, **kwargs)
        mod = attnc.Mod.parse("def weight_mod(score, b, h, q_idx, kv_idx):\n    return score")
        with self.assertRaisesRegex(attnc.ArgumentError, "no lse: leave return_lse out"):
            attnc.attention(mod, *(x.detach() for x in qkv), return_lse=True)
        with self.assertRaisesRegex(TypeError, "weight_mod is a int"):
            flex_attention(*qkv, enable_gqa=True, weight_mod=3)

    def test_is_translated_and_explained(self):
        from attnc.torch import explain, translate

        mod = attnc.Mod.parse_ir(translate(weight_mod=self.weight_of(self.inputs[3])).given()[0])
        self.assertTrue(mod.has_weight_mod)
        self.assertIn("weight_mod", repr(mod))
        self.assertIn("weight_mod", str(explain(*self.inputs[:3], enable_gqa=True, weight_mod=self.weight_of(self.inputs[3]), arch="sm_90a")))


@unittest.skipIf(jax is None, "SKIPPED: jax is not installed")
class Jax(unittest.TestCase):
    def test_is_its_definition(self):
        import jax.numpy as jnp
        from attnc.jax import flex_attention

        keys = jax.random.split(jax.random.key(1), 5)
        inputs = [jax.random.normal(key, (B, heads, L, D)) for key, heads in zip(keys, (H, HKV, HKV))]
        inputs.append(jax.random.normal(keys[3], (H,)))
        d_out = jax.random.normal(keys[4], (B, H, L, D))

        def attend(q, k, v, bias):
            weight_mod = lambda score, b, h, q_idx, kv_idx: jax.nn.sigmoid(score + bias[h])
            return flex_attention(q, k, v, block_mask=lambda b, h, q, k: q >= k, enable_gqa=True, weight_mod=weight_mod)

        def wanted(q, k, v, bias):
            k, v = (jnp.repeat(x, H // HKV, axis=1) for x in (k, v))
            scores = jnp.einsum("bhqd,bhkd->bhqk", q, k, precision="highest") / D**0.5
            weights = jnp.tril(jax.nn.sigmoid(scores + bias[:, None, None]))
            return jnp.einsum("bhqk,bhkd->bhqd", weights, v, precision="highest")

        grads = [jax.value_and_grad(lambda *x, f=f: (f(*x) * d_out).sum(), (0, 1, 2, 3)) for f in (jax.jit(attend), wanted)]
        (value, found), (expected, be) = (grad(*inputs) for grad in grads)
        self.assertTrue(jnp.allclose(value, expected, rtol=1e-4))
        for is_, other in zip(found, be):
            self.assertTrue(jnp.allclose(is_, other, rtol=1e-4, atol=1e-4))
        with self.assertRaisesRegex(ValueError, "and lse is of the softmax"):
            flex_attention(*inputs[:3], enable_gqa=True, return_lse=True, weight_mod=lambda score, *at: score)

    def test_a_prob_mod_of_any_form_is_its_definition(self):
        import jax.numpy as jnp
        from attnc.jax import flex_attention

        keys = jax.random.split(jax.random.key(2), 4)
        inputs = [*(jax.random.normal(key, (B, H, L, D)) for key in keys[:3]), jax.random.normal(keys[3], (H,))]

        def attend(q, k, v, c):
            prob_mod = lambda prob, b, h, q_idx, kv_idx: prob * prob * c[h] + jnp.sqrt(prob + 0.1)
            return flex_attention(q, k, v, block_mask=lambda b, h, q, k: q >= k, return_lse=True, prob_mod=prob_mod)

        def wanted(q, k, v, c):
            live = jnp.tril(jnp.ones((L, L), bool))
            scores = jnp.where(live, jnp.einsum("bhqd,bhkd->bhqk", q, k, precision="highest") / D**0.5, -1e30)
            lse = jax.scipy.special.logsumexp(scores, -1, keepdims=True)
            prob = jnp.exp(scores - lse)
            weights = jnp.where(live, prob * prob * c[:, None, None] + jnp.sqrt(prob + 0.1), 0)
            return jnp.einsum("bhqk,bhkd->bhqd", weights, v, precision="highest"), lse[..., 0]

        loss = lambda f: lambda *x: sum((y * y).sum() for y in f(*x))
        for is_, be in zip(*(jax.jit(jax.grad(loss(f), (0, 1, 2, 3)))(*inputs) for f in (attend, wanted))):
            self.assertTrue(jnp.allclose(is_, be, rtol=1e-3, atol=1e-3 * float(jnp.abs(be).max())))


if __name__ == "__main__":
    unittest.main()
