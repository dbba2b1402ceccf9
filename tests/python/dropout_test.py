#!/usr/bin/env python3
"""Checks what acts behind the softmax, prob_mod and dropout_p, in PyTorch: against attention in fp64 with the same random
numbers, between doors, and against what PyTorch's users expect of random numbers.

  ATTNC_LIBRARY=libattnc.so python3 dropout_test.py [-v ...]

Runs on the CPU. Prints SKIPPED if torch is not installed.
"""

import functools
import math
import unittest
import unittest.mock

import needs

needs.modules("attention", "numpy")
import numpy
import torch
from attention import by_definition, relative_error
from torch.utils.checkpoint import checkpoint

import attnc
from attnc.prob_mods import rate_of
from attnc.torch import create_block_mask, explain, flash, flex, flex_attention, graphs, translate

B, H, HKV, L, D = 2, 4, 2, 48, 16
P = 0.25


def operands(requires_grad=True):
    generator = torch.Generator().manual_seed(1)
    shapes = (B, H, L, D), (B, HKV, L, D), (B, HKV, L, D)
    return [torch.randn(shape, generator=generator).requires_grad_(requires_grad) for shape in shapes]


def dropping(seed, dropout_p=P):
    """A user's prob_mod that is dropout."""

    def drop(prob, b, h, q_idx, kv_idx):
        return torch.where(attnc.random(seed, b, h, q_idx, kv_idx) < dropout_p, 0.0, prob / (1 - dropout_p))

    return drop


def causal(b, h, q_idx, kv_idx):
    return q_idx >= kv_idx


def attend(q, k, v, **options):
    return flex_attention(q, k, v, enable_gqa=True, **options)


def weights(dropout_p, shape=(2, 3, 64, 64), **options):
    """Returns the factors of equal weights, after dropout."""
    batch, heads, rows, columns = shape
    q, k = (torch.zeros(batch, heads, length, 16) for length in (rows, columns))
    v = torch.eye(columns).expand(batch, heads, -1, -1)
    return flex_attention(q, k, v, dropout_p=dropout_p, **options) * columns


class ProbModTest(unittest.TestCase):
    def near(self, actual, expected):
        self.assertLess(relative_error(actual.detach(), expected.detach()), 1e-6)

    def same_as_defined(self, prob_mod, run, score_mod=None, mask_mod=None, learned=()):
        """Compares run(q, k, v), and gradients by it, with the definition."""
        q, k, v = operands()
        out = run(q, k, v)
        right, _ = by_definition(score_mod, mask_mod, q, k, v, prob_mod=prob_mod)
        self.near(out, right)
        dout = torch.randn(out.shape, generator=torch.Generator().manual_seed(2))
        found = torch.autograd.grad(out, (q, k, v, *learned), dout)
        for actual, wanted in zip(found, torch.autograd.grad(right, (q, k, v, *learned), dout.double())):
            self.near(actual, wanted)

    def test_results_and_gradients(self):
        seed, slopes = torch.tensor(2**40 + 5), torch.rand(H, requires_grad=True)
        biased = lambda score, b, h, q_idx, kv_idx: score + slopes[h] * (kv_idx - q_idx)
        mask = create_block_mask(causal, None, None, L, L, device="cpu")
        drop = dropping(seed)
        self.same_as_defined(drop, lambda q, k, v: attend(q, k, v, prob_mod=drop))
        self.same_as_defined(
            drop, lambda q, k, v: attend(q, k, v, score_mod=biased, block_mask=mask, prob_mod=drop), biased, causal,
            (slopes,),
        )  # fmt: skip
        gate = torch.rand(H, L)
        gated = lambda prob, b, h, q_idx, kv_idx: -prob * gate[h, kv_idx] + prob * 0.5
        self.same_as_defined(gated, lambda q, k, v: attend(q, k, v, prob_mod=gated))

    def test_lse_and_maxima_are_those_of_the_softmax(self):
        q, k, v = operands(False)
        plain = attend(q, k, v, return_aux=flex.AuxRequest(lse=True, max_scores=True))[1]
        for options in ({"prob_mod": dropping(torch.tensor(3))}, {"dropout_p": 0.5}):
            found = attend(q, k, v, return_aux=flex.AuxRequest(lse=True, max_scores=True), **options)[1]
            self.assertTrue(torch.equal(found.lse, plain.lse) and torch.equal(found.max_scores, plain.max_scores))

    def test_captures_of_a_prob_mod_have_no_gradient(self):
        gate = torch.rand(L, requires_grad=True)
        q, k, v = operands()
        with self.assertRaisesRegex(attnc.RunError, "no gradient: prob_mod reads it"):
            attend(q, k, v, prob_mod=lambda prob, b, h, q_idx, kv_idx: prob * gate[kv_idx]).sum().backward()

    def test_mistakes(self):
        q, k, v = operands(False)
        for prob_mod, kind, told in (
            (lambda prob, b, h, q_idx: prob, TypeError, "the prob_mod .* must take prob, b, h, q_idx and kv_idx"),
            (lambda prob, b, h, q_idx, kv_idx: (prob, prob), TypeError, "returns a tuple, expected a number"),
            (lambda prob, b, h, q_idx, kv_idx: None, TypeError, "returns nothing"),
            ("drop", TypeError, "prob_mod is a str: give a function of prob, b, h, q_idx and kv_idx"),
        ):  # fmt: skip
            with self.assertRaisesRegex(kind, told):
                attend(q, k, v, prob_mod=prob_mod)
        for dropout_p in (1.0, -0.1, math.nan, "0.1", True, torch.tensor(2.0)):
            with self.assertRaisesRegex(ValueError, r"dropout_p is .*: give the share of weights to drop, a number in \[0, 1\)"):
                weights(dropout_p)
        with self.assertRaisesRegex(TypeError, "score_mod is a str"):
            attend(q, k, v, score_mod="soft", dropout_p=0.1)

    def test_each_rate_has_fast_kernels(self):
        q = torch.randn(1, 2, 256, 64, dtype=torch.bfloat16)
        for dropout_p in (0.1, 0.2, 0.1, 0.011):
            for training in (False, True):
                found = explain(q, q, q, dropout_p=dropout_p, arch="sm_90a", training=training)
                self.assertEqual(found["kernel"]["family"], "sm90", (dropout_p, training))
        q = q.to("meta")
        self.assertIn("prob_mod", explain(q, q, q, dropout_p=0.1, arch="sm_90a")["whyNoTimes"])

    def test_translate_and_explain_take_it(self):
        self.assertTrue(translate(None, causal, prob_mod=dropping(7)).mod.has_prob_mod)
        self.assertFalse(translate(None, causal).mod.has_prob_mod)
        self.assertIs(flex.with_prob(causal, None, 0.0, None, None), causal)
        q, k, v = (x.bfloat16() for x in operands(False))
        with unittest.mock.patch.object(attnc.Mod, "_explained", lambda mod, *_: mod.has_prob_mod):
            state = torch.get_rng_state()
            for given in ({"prob_mod": dropping(7)}, {"dropout_p": 0.1}):
                self.assertTrue(explain(q, k, v, enable_gqa=True, arch="sm_90a", **given))
            self.assertTrue(torch.equal(torch.get_rng_state(), state))

    def test_two_results_of_a_score_mod_are_refused_in_graphs(self):
        """They are those of a score_mod and a prob_mod only where attnc joins these."""
        q, k, v = operands(False)
        for mod in (lambda score, *_: (score, score * 0), lambda score, *_: [score] * 3):
            for fullgraph in (True, False):
                torch._dynamo.reset()
                compiled = torch.compile(lambda *x: attend(*x, score_mod=mod), backend="aot_eager", fullgraph=fullgraph)
                with self.assertRaisesRegex(Exception, "`score_mod` returns a (tuple|list), expected a number: return one"):
                    compiled(q, k, v)

    def test_operands_of_several_dtypes(self):
        q, k, v = operands(False)
        q, drop = q.bfloat16(), dropping(torch.tensor(9))
        call = lambda q, k, v: attend(q, k, v, prob_mod=drop)
        for attention in (call, torch.compile(call, backend="aot_eager", fullgraph=True)):
            out = attention(q, k, v)
            self.assertEqual(out.dtype, torch.bfloat16)
            right = by_definition(None, None, q.float(), k, v, prob_mod=drop)[0]
            self.assertLess(relative_error(out, right), 1e-2)

    def test_in_graphs(self):
        seed, drop = torch.tensor(9), dropping(torch.tensor(9))
        for score_mod in (None, lambda score, b, h, q_idx, kv_idx: score * 0.5):
            compiled = torch.compile(
                lambda q, k, v: attend(q, k, v, score_mod=score_mod, prob_mod=drop), fullgraph=True, backend="aot_eager"
            )
            self.same_as_defined(drop, compiled, score_mod)
        exported = torch.export.export(Attention(seed), tuple(operands(False)))
        self.near(exported.module()(*operands(False)), by_definition(None, None, *operands(False), prob_mod=drop)[0])


class Attention(torch.nn.Module):
    def __init__(self, seed):
        super().__init__()
        self.register_buffer("seed", seed)

    def forward(self, q, k, v):
        return attend(q, k, v, prob_mod=dropping(self.seed))


class DropoutTest(unittest.TestCase):
    def test_statistics(self):
        torch.manual_seed(5)
        for dropout_p, rate in ((0.1, 26 / 256), (0.5, 0.5), (0.9, 230 / 256), (0.011, 0.011), (0.99, 0.99)):
            self.assertEqual(rate_of(dropout_p), rate)
            self.assertEqual(rate_of(0.999), 0.999)
            first, second = weights(dropout_p), weights(dropout_p)
            dropout_p = rate
            self.assertTrue(torch.allclose(first[first != 0], torch.tensor(1 / (1 - dropout_p))))
            kept = torch.stack([first != 0, second != 0]).double()  # seeds, batch, heads, rows, columns
            count, deviation = kept.numel(), math.sqrt(dropout_p * (1 - dropout_p))
            self.assertLess(abs(kept.mean() - (1 - dropout_p)), 4 * deviation / math.sqrt(count))
            normal = (kept - (1 - dropout_p)) / deviation
            # Neighbours along each axis, and those that share a counter of Philox, are independent.
            for axis, step in (*((axis, 1) for axis in range(5)), (3, 8), (4, 8), (4, 16), (4, 32)):
                moved = normal.narrow(axis, step, normal.shape[axis] - step)
                both = moved * normal.narrow(axis, 0, normal.shape[axis] - step)
                self.assertLess(abs(both.mean()), 5 / math.sqrt(both.numel()), (axis, step))

    def test_it_is_the_mod_of_the_library_and_what_cpython_computes(self):
        q, k, v = operands(False)
        seed, key = torch.tensor(2**62 + 12345), None
        with unittest.mock.patch.object(flex, "seed_like", lambda tensor: seed):
            found = attend(q, k, v, dropout_p=P)
            kept = weights(P, (1, 2, 20, 30))
        self.assertTrue(torch.equal(found, attend(q, k, v, prob_mod=dropping(seed))))
        mod = attnc.Mod.load(needs.ROOT / "dsl/mods/dropout.py", defines={"P": P})
        self.assertEqual((mod.has_prob_mod, mod.has_score_mod, mod.has_mask_mod), (True, False, False))
        self.assertTrue(torch.equal(found, attnc.attention(mod, q, k, v, captures={"seed": seed})))
        of_numpy = attnc.attention(mod, *(x.numpy() for x in (q, k, v)), captures={"seed": seed.numpy()})
        self.assertTrue(numpy.array_equal(of_numpy, found.numpy()))
        for key in ((0, 1, 19, 29), (0, 0, 0, 0), (0, 1, 7, 8), (0, 0, 11, 21)):
            self.assertEqual(kept[key] != 0, attnc.random(int(seed), *key) >= P)

    def test_gradients(self):
        torch.manual_seed(11)
        seed = flex.seed_like(torch.zeros(()))
        check = ProbModTest()
        with unittest.mock.patch.object(flex, "seed_like", lambda tensor: seed):
            check.same_as_defined(dropping(seed), lambda q, k, v: attend(q, k, v, dropout_p=P))
            gate = torch.rand(H)
            gated = lambda prob, b, h, q_idx, kv_idx: prob * gate[h]
            both = lambda prob, *at: dropping(seed)(gated(prob, *at), *at)
            check.same_as_defined(both, lambda q, k, v: attend(q, k, v, dropout_p=P, prob_mod=gated))

    def test_seeds_come_from_the_generator(self):
        q, k, v = operands(False)
        torch.manual_seed(3)
        first, second = attend(q, k, v, dropout_p=P), attend(q, k, v, dropout_p=P)
        self.assertFalse(torch.equal(first, second))
        torch.manual_seed(3)
        self.assertTrue(torch.equal(attend(q, k, v, dropout_p=P), first))
        state = torch.get_rng_state()
        attend(q, k, v, dropout_p=0.0)
        self.assertTrue(torch.equal(torch.get_rng_state(), state))

    def test_calls_like_an_earlier_one_have_their_own_seeds(self):
        q, k, v = operands()
        score_mod = lambda score, b, h, q_idx, kv_idx: score * 0.5
        call = lambda: attend(q, k, v, score_mod=score_mod, dropout_p=P)
        for _ in range(2):  # a mod that is looked up at each call, beside which others are not
            attend(q, k, v, score_mod=functools.partial(score_mod), dropout_p=P)
        torch.manual_seed(4)
        wanted = [call() for _ in range(4)]
        torch.manual_seed(4)
        torch.manual_seed(4)
        with unittest.mock.patch.object(flex, "translate", side_effect=AssertionError("translated again")):
            for out in wanted:
                self.assertTrue(torch.equal(call(), out))

    def test_checkpointing_drops_the_same_weights(self):
        for use_reentrant in (False, True):
            gradients = []
            for run in (lambda f, *args: f(*args), lambda f, *args: checkpoint(f, *args, use_reentrant=use_reentrant)):
                q, k, v = operands()
                torch.manual_seed(6)
                out = run(lambda *args: attend(*args, dropout_p=P), q, k, v)
                torch.rand(5)  # moves the generator before the backward pass
                gradients.append([out, *torch.autograd.grad(out.square().sum(), (q, k, v))] if not use_reentrant else
                                 [out, *_gradients(out, q, k, v)])  # fmt: skip
            for a, b in zip(*gradients):
                self.assertTrue(torch.equal(a, b))

    def test_in_graphs(self):
        compiled = torch.compile(lambda q, k, v: attend(q, k, v, dropout_p=P), fullgraph=True, backend="aot_eager")
        q, k, v = operands()
        torch.manual_seed(8)
        out = compiled(q, k, v)
        found = torch.autograd.grad(out.square().sum(), (q, k, v))
        self.assertFalse(torch.equal(compiled(q, k, v), out))
        torch.manual_seed(8)
        right = attend(q, k, v, dropout_p=P)
        self.assertTrue(torch.equal(out, right))
        for a, b in zip(found, torch.autograd.grad(right.square().sum(), (q, k, v))):
            self.assertTrue(torch.equal(a, b))
        # One operator, which other recorders see as well.
        recorded = torch.fx.experimental.proxy_tensor.make_fx(lambda q, k, v: attend(q, k, v, dropout_p=P))(
            *operands(False)
        )
        torch.manual_seed(8)
        self.assertTrue(torch.equal(recorded(*operands(False)), right))
        self.assertTrue(graphs.is_traced)

    def test_rates_that_change_and_checkpoints_in_graphs(self):
        step = lambda q, k, v, dropout_p: attend(q, k, v, dropout_p=dropout_p).square().sum()
        kept = lambda *args: checkpoint(step, *args, use_reentrant=False)
        q, k, v = operands()
        for call in (step, kept):
            compiled = torch.compile(call, fullgraph=True, backend="aot_eager_decomp_partition")
            for dropout_p in (0.1, 0.2, 0.3, 0.0):
                found = []
                for run in (compiled, step):
                    torch.manual_seed(9)
                    found.append(torch.autograd.grad(run(q, k, v, dropout_p), (q, k, v)))
                for a, b in zip(*found):
                    self.assertTrue(torch.equal(a, b))

    def test_autocast_and_mixed_dtypes(self):
        q, k, v = operands(False)
        for call in (
            lambda: attend(q.bfloat16(), k, v, dropout_p=P),
            lambda: attend(q.bfloat16().float(), k, v, dropout_p=P).bfloat16(),
        ):
            torch.manual_seed(1)
            out = call()
            torch.manual_seed(1)
            self.assertTrue(torch.equal(call(), out))
        torch.manual_seed(1)
        with torch.autocast("cpu", torch.bfloat16):
            out = attend(q, k, v, dropout_p=P)
        torch.manual_seed(1)
        self.assertTrue(torch.equal(out, attend(q.bfloat16(), k.bfloat16(), v.bfloat16(), dropout_p=P)))


def _gradients(out, *inputs):
    out.square().sum().backward()
    return [x.grad for x in inputs]


class FlashTest(unittest.TestCase):
    """Dropout behind scaled_dot_product_attention and varlen_attn, by the operators that they call."""

    def setUp(self):
        active = flash._Active("CPU")
        self.addCleanup(active.remove)

    def test_scaled_dot_product(self):
        q, k, v = (x.detach().bfloat16().requires_grad_() for x in operands())
        call = lambda dropout_p=P: torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, dropout_p, True, False)
        torch.manual_seed(2)
        out, _, _, _, _, _, state, _, _ = call()
        seed = state.view(torch.int64)[0]
        right, _ = by_definition(None, causal, q, k, v, prob_mod=dropping(seed))
        self.assertLess(relative_error(out, right), 1e-2)
        dout = torch.randn_like(out)
        found = torch.autograd.grad(out, (q, k, v), dout)
        for actual, wanted in zip(found, torch.autograd.grad(right, (q, k, v), dout.double())):
            self.assertLess(relative_error(actual, wanted), 1e-2)
        self.assertFalse(torch.equal(call()[0], out))
        torch.manual_seed(2)
        self.assertTrue(torch.equal(call()[0], out))
        before = torch.get_rng_state()
        self.assertEqual(int(call(0.0)[6].view(torch.int64).abs().sum()), 0)
        self.assertTrue(torch.equal(torch.get_rng_state(), before))

    def test_ragged(self):
        lengths, rows = [30, 1, 17], 48
        starts = torch.tensor([0, *lengths], dtype=torch.int32).cumsum(0).int()
        q, k, v = (torch.randn(rows, H, D).bfloat16() for _ in range(3))
        out, lse, state, unused, _ = torch.ops.aten._flash_attention_forward(
            q, k, v, starts, starts, 30, 30, P, True, False
        )
        dout = torch.randn_like(out)
        found = torch.ops.aten._flash_attention_backward(
            dout, q, k, v, out, lse, starts, starts, 30, 30, P, True, state, unused
        )
        seed = state.view(torch.int64)[0]
        for b, (start, end) in enumerate(zip(starts, starts[1:])):
            drop = lambda prob, _, h, q_idx, kv_idx, b=b: dropping(seed)(prob, torch.tensor(b), h, q_idx, kv_idx)
            part = [x[start:end].transpose(0, 1)[None].requires_grad_() for x in (q, k, v)]
            right, _ = by_definition(None, causal, *part, prob_mod=drop)
            self.assertLess(relative_error(out[start:end].transpose(0, 1)[None], right), 1e-2)
            wanted = torch.autograd.grad(right, part, dout[start:end].transpose(0, 1)[None].double())
            for actual, gradient in zip(found, wanted):
                self.assertLess(relative_error(actual[start:end].transpose(0, 1)[None], gradient), 1.5e-2)


if __name__ == "__main__":
    unittest.main()
