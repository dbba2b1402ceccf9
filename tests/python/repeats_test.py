#!/usr/bin/env python3
"""Checks that calls like an earlier one are told from those that differ in something.

  ATTNC_LIBRARY=libattnc.so python3 repeats_test.py [-v ...]

Prints SKIPPED if torch is not installed.
"""

import contextlib
import gc
import itertools
import math
import types
import unittest
import weakref
from unittest import mock

import needs

needs.modules("attention")
import torch
from attention import by_definition, relative_error
import guards_test
from attnc.torch import AuxRequest, create_block_mask, flex, flex_attention, repeats
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.attention import flex_attention as theirs
from torch.utils._python_dispatch import TorchDispatchMode

B, H, L, D = 1, 2, 12, 8
SHIFT = 2


class LookUps:
    """Counts calls that are not repeated."""

    def __enter__(self):
        self.patch = mock.patch.object(flex, "translate", wraps=flex.translate)
        self.mock = self.patch.__enter__()
        return self

    def __exit__(self, *exception):
        self.patch.__exit__(*exception)

    @property
    def count(self):
        return self.mock.call_count


class Mode(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))


def causal(b, h, q, k):
    return q >= k


def operands(length=L, **options):
    return [torch.randn(B, H, length, D, **options) for _ in range(3)]


class RepeatsTest(unittest.TestCase):
    def setUp(self):
        repeats._kept.clear()
        self.q, self.k, self.v = operands()

    def compare(self, out, score_mod, mask_mod, q=None, k=None, v=None):
        q, k, v = (mine if given is None else given for mine, given in zip((self.q, self.k, self.v), (q, k, v)))
        right, _ = by_definition(score_mod, mask_mod, q, k, v)
        self.assertLess(relative_error(out.detach(), right), 1e-5 if q.dtype == torch.float32 else 1e-2)

    def warm(self, call, count=3):
        """Calls until the calls are repeated; the last one must be."""
        for _ in range(count - 1):
            call()
        with LookUps() as looked:
            out = call()
        self.assertEqual(looked.count, 0)
        return out

    def looks_up(self, call):
        with LookUps() as looked:
            out = call()
        self.assertEqual(looked.count, 1)
        return out

    def test_repeated(self):
        slopes = torch.rand(H)
        mask = create_block_mask(causal, None, None, L, L, "cpu")
        for score_mod in (None, lambda s, b, h, q, k: s + slopes[h] * (k - q) * SHIFT):
            call = lambda: flex_attention(self.q, self.k, self.v, score_mod, mask)  # noqa: E731
            self.warm(call)
            self.q, slopes = torch.randn(B, H, L, D), torch.rand(H)  # other tensors of the same kind
            self.compare(self.warm(call, 1), score_mod, causal)
        out, lse = flex_attention(self.q, self.k, self.v, score_mod, mask, return_lse=True)
        self.assertEqual(lse.shape, (B, H, L))
        half = flex_attention(self.q, self.k, self.v, score_mod, mask, scale=0.5)
        self.compare(half, score_mod, causal, self.q * 0.5 * D**0.5)

    def test_functions_are_made_anew(self):
        """Layers make their mods at each call."""

        def call(window, table):
            inner = lambda q, k: q - k < window  # noqa: E731
            mask = create_block_mask(lambda b, h, q, k: inner(q, k), None, None, L, L, "cpu")
            return flex_attention(self.q, self.k, self.v, lambda s, b, h, q, k: s * table[q], mask)

        self.warm(lambda: call(3, torch.rand(L)))
        table = torch.rand(L)
        out = self.looks_up(lambda: call(5, table))
        self.compare(out, lambda s, b, h, q, k: s * table[q], lambda b, h, q, k: q - k < 5)

    def test_changes_are_seen(self):
        for name, mask_mod, change in itertools.chain(guards_test.changes(), guards_test.special_changes()):
            with self.subTest(name):
                mask = create_block_mask(mask_mod, None, None, L, L, "cpu")
                call = lambda: flex_attention(self.q, self.k, self.v, None, mask)  # noqa: E731
                before = [call() for _ in range(4)][-1]
                change()
                after = call()
                if name != "buffer":  # whose number stays
                    self.assertFalse(torch.equal(before, after))
                repeats._kept.clear()
                self.assertTrue(torch.equal(after, call()))
            vars(guards_test).update(LIMIT=3)
            guards_test.Holder.shift = 1

    def test_changes_of_plain_mods_are_seen(self):
        text = """
def mod(s, b, h, q, k):
    by_type = 5.0 if isinstance(FAR, int) else 1.0
    return s + abs(table[q] - FAR) * k * math.copysign(by_type, FAR) * getattr(helper, "factor", 1.0)
def helper():
    pass
"""
        table = torch.arange(float(L))
        scope = {"math": math, "FAR": 1.0, "table": table}
        exec(text, scope)
        mod = scope["mod"]
        call = lambda: flex_attention(self.q, self.k, self.v, mod)  # noqa: E731
        changes = {
            "a number": lambda: scope.update(FAR=2.0),
            "its type": lambda: scope.update(FAR=2),
            "to a zero": lambda: scope.update(FAR=0.0),
            "the sign of a zero": lambda: scope.update(FAR=-0.0),
            "a name of Python's": lambda: scope.update(abs=lambda x: x * x),
            "the tensor": lambda: scope.update(table=torch.rand(L)),
            "its strides": lambda: scope.update(table=torch.rand(L, 2)[:, 0]),
            "its address": lambda: scope.update(table=torch.rand(L + 1)[1:]),
            "its address again": lambda: scope.update(table=torch.rand(L)),
            "its values": lambda: scope["table"].fill_(3),
            "its dtype": lambda: scope.update(table=table.int()),
            "an attribute of a function": lambda: setattr(scope["helper"], "factor", 2.0),
            "its code": lambda: setattr(mod, "__code__", (lambda s, b, h, q, k: s * 2).__code__),
        }
        for name, change in changes.items():
            with self.subTest(name):
                for _ in range(3):
                    before = call()
                if name != "its code":  # with an attribute of a function, the mod is not plain
                    self.warm(call, 1)
                with LookUps() as looked:
                    change()
                    after = call()
                self.assertEqual(looked.count, name not in ("the tensor", "its values"))
                repeats._kept.clear()
                self.assertTrue(torch.equal(after, call()))
                self.assertFalse(torch.equal(before, after))

    def test_functions_of_the_same_code(self):
        code = compile("lambda s, b, h, q, k: s * FAR", "", "eval")
        mods = [eval(code, {"FAR": far}) for far in (2.0, 3.0)]  # in other scopes
        mods = [mods[0], types.FunctionType(mods[0].__code__, {"FAR": 3.0})]
        call = lambda mod: flex_attention(self.q, self.k, self.v, mod)  # noqa: E731
        self.warm(lambda: call(mods[0]))
        self.compare(self.looks_up(lambda: call(mods[1])), lambda s, b, h, q, k: s * 3, None)
        inner = lambda q, k: q + k  # noqa: E731
        outer = lambda s, b, h, q, k: s + inner(q, k)  # noqa: E731
        self.warm(lambda: call(outer))
        inner = lambda q, k: q * k * 0.5  # noqa: E731
        self.compare(self.looks_up(lambda: call(outer)), outer, None)
        with_default = lambda s, b, h, q, k, far=2.0: s * far  # noqa: E731
        self.warm(lambda: call(with_default))
        with_default.__defaults__ = (3.0,)
        self.compare(self.looks_up(lambda: call(with_default)), lambda s, b, h, q, k: s * 3, None)

    def test_operands_that_differ(self):
        mask = create_block_mask(causal, None, None, L, L, "cpu")
        call = lambda q=self.q, k=self.k, v=self.v: flex_attention(q, k, v, None, mask)  # noqa: E731
        self.warm(call)
        turned = self.q.transpose(1, 2).contiguous().transpose(1, 2)
        self.compare(self.looks_up(lambda: call(turned)), None, causal)
        odd = torch.empty(B * H * L * D + 1)[1:].view(B, H, L, D).copy_(self.q)  # its address
        self.compare(self.looks_up(lambda: call(odd)), None, causal)
        narrow = [x.bfloat16() for x in (self.q, self.k, self.v)]
        self.compare(self.looks_up(lambda: call(*narrow)), None, causal, *narrow)
        self.assertEqual(call(narrow[0]).dtype, torch.bfloat16)
        with self.assertRaisesRegex(ValueError, "queries"):
            call(*operands(L + 1))
        with self.assertRaisesRegex(ValueError, "enable_gqa"):
            call(k=self.k[:, :1], v=self.v[:, :1])
        mask.seq_lengths = (L, L + 1)
        with self.assertRaisesRegex(ValueError, "queries"):
            call()
        mask.seq_lengths, mask.mask_mod = (L, L), lambda b, h, q, k: q <= k
        self.compare(self.looks_up(call), None, mask.mask_mod)

    def test_two_tensors_become_one(self):
        first, second = torch.rand(L), torch.rand(L)
        score_mod = lambda s, b, h, q, k: s + second[q] * k - 3 * first[k]  # noqa: E731
        call = lambda: flex_attention(self.q, self.k, self.v, score_mod)  # noqa: E731
        self.compare(self.warm(call), score_mod, None)
        second = first
        self.compare(self.looks_up(call), score_mod, None)

    def test_gradients(self):
        table = torch.rand(L)
        score_mod = lambda s, b, h, q, k: s + table[k]  # noqa: E731
        call = lambda: flex_attention(self.q, self.k, self.v, score_mod)  # noqa: E731
        self.warm(call)
        for wanting in ([self.q], [table], [self.k, self.v, table]):
            for x in (self.q, self.k, self.v, table):
                x.requires_grad_(any(x is y for y in wanting))
            self.looks_up(call)
            dout = torch.randn(B, H, L, D)
            found = torch.autograd.grad(self.warm(call), wanting, dout)
            expected = torch.autograd.grad(by_definition(score_mod, None, self.q, self.k, self.v)[0], wanting, dout.double())
            for actual, right in zip(found, expected):
                self.assertLess(relative_error(actual, right), 1e-5)
            with torch.no_grad():
                self.assertFalse(call().requires_grad)
            self.assertTrue(call().requires_grad)
        torch.use_deterministic_algorithms(True)
        self.addCleanup(torch.use_deterministic_algorithms, False)
        self.looks_up(call)

        def second(out):
            (dk,) = torch.autograd.grad(out.sum(), [self.k], create_graph=True)
            return torch.autograd.grad(dk.square().sum(), [self.v])[0]

        for factor in (1, 0.5):
            scaled = lambda: flex_attention(self.q, self.k, self.v, score_mod, scale=factor * D**-0.5)  # noqa: E731
            expected = second(by_definition(score_mod, None, self.q * factor, self.k, self.v)[0])
            self.assertLess(relative_error(second(self.warm(scaled)), expected), 1e-5)

    def test_gradients_after_calls_without(self):
        """A call that was repeated under no_grad() is not one whose tensors, of the same kind, now get gradients."""
        bias = torch.rand(H, L, requires_grad=True)
        for leaves, score_mod in (
            ([bias], lambda s, b, h, q, k: s + bias[h, k]), ([x.requires_grad_() for x in (self.q, self.k, self.v)], None)
        ):  # fmt: skip
            call = lambda: flex_attention(self.q, self.k, self.v, score_mod)  # noqa: E731
            with torch.no_grad():
                self.assertFalse(self.warm(call).requires_grad)
            for _ in range(3):
                self.assertTrue(all(x.any() for x in torch.autograd.grad(call().square().sum(), leaves)))
            self.assertTrue(self.warm(call, 1).requires_grad)
            with torch.no_grad():
                self.assertFalse(self.warm(call, 1).requires_grad)

    def test_modes(self):
        call = lambda q=self.q: flex_attention(q, self.k, self.v)  # noqa: E731
        right = self.warm(call)
        with mock.patch.object(flex, "attend_recorded", wraps=flex.attend_recorded) as recorded:
            with Mode():
                self.assertTrue(torch.equal(call(), right))
            self.assertEqual(recorded.call_count, 1)
            graph = make_fx(lambda q: call(q))(self.q)
            self.assertTrue(torch.equal(graph(self.q * 2), call(self.q * 2)))
            traced = torch.jit.trace(lambda q: call(q), (self.q,), check_trace=False)
            self.assertTrue(torch.equal(traced(self.q * 2), call(self.q * 2)))
            self.assertEqual(recorded.call_count, 3)
            self.assertTrue(torch.equal(torch.func.vmap(lambda q: call(q))(self.q[None])[0], right))
            with forward_ad.dual_level():
                self.assertTrue(forward_ad.unpack_dual(call(forward_ad.make_dual(self.q, self.q))).tangent.any())
            self.assertEqual(recorded.call_count, 5)
        with torch.inference_mode():
            self.assertTrue(torch.equal(call(), right))
        with torch.autocast("cpu", torch.bfloat16):
            for _ in range(3):
                self.assertEqual(call().dtype, torch.bfloat16)
        with torch.autocast("cpu", torch.float16):
            self.assertEqual(call().dtype, torch.float16)
        self.assertEqual(call().dtype, torch.float32)
        self.assertIs(type(call(torch.nn.Parameter(self.q))), torch.Tensor)

    def test_options(self):
        call = lambda **how: flex_attention(self.q, self.k, self.v, **how)  # noqa: E731
        right = self.warm(call)
        self.assertTrue(torch.equal(right, call(kernel_options={"PRESCALE_QK": True})))
        out, aux = call(return_aux=AuxRequest(lse=True, max_scores=True))
        _, again = self.warm(lambda: call(return_aux=AuxRequest(lse=True, max_scores=True)))
        self.assertTrue(torch.equal(aux.lse, again.lse) and torch.equal(aux.max_scores, again.max_scores))
        self.assertIsNone(call(return_aux=AuxRequest(lse=True))[1].max_scores)
        with self.assertRaisesRegex(ValueError, "return_lse and return_aux"):
            call(return_lse=True, return_aux=AuxRequest(lse=True))
        with self.assertRaisesRegex(ValueError, "BACKEND"):
            call(kernel_options={"BACKEND": "OTHER"})

    def test_masks_with_lists(self):
        """Masks of PyTorch are looked up each time."""
        mask = theirs.create_block_mask(causal, None, None, L, L, device="cpu")
        for _ in range(3):
            self.compare(self.looks_up(lambda: flex_attention(self.q, self.k, self.v, None, mask)), None, causal)

    def test_many_kinds(self):
        """Calls of more kinds than are kept are right, and those of new kinds come to be kept."""
        for length in [*range(3, 13)] * 3:
            q, k, v = operands(length)
            self.compare(flex_attention(q, k, v), None, None, q, k, v)
        self.assertLessEqual(max(map(len, repeats._kept.values())), repeats._MOST_OF_A_KEY)
        with mock.patch.object(repeats, "_MOST_MISSED", 2):
            self.warm(lambda: flex_attention(*operands(20)), 6)

    def test_nothing_is_kept_alive(self):
        table = torch.rand(L)
        score_mod = lambda s, b, h, q, k: s + table[k]  # noqa: E731
        self.warm(lambda: flex_attention(self.q, self.k, self.v, score_mod))
        seen = weakref.ref(table), weakref.ref(score_mod), weakref.ref(self.q)
        del table, score_mod, self.q
        gc.collect()
        self.assertEqual([x() for x in seen], [None] * 3)

    def test_without_the_guards_of_pytorch(self):
        with mock.patch.object(repeats, "_guards_of", lambda tensors: None):
            for _ in range(3):
                self.compare(self.looks_up(lambda: flex_attention(self.q, self.k, self.v)), None, None)

    def test_functions_that_hold_themselves(self):
        def score_mod(s, b, h, q, k):
            return s if score_mod is None else s * 2

        with contextlib.suppress(RecursionError):
            for _ in range(3):
                out = flex_attention(self.q, self.k, self.v, score_mod)
        self.compare(out, lambda s, b, h, q, k: s * 2, None)


if __name__ == "__main__":
    unittest.main()
