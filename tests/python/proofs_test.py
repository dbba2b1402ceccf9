#!/usr/bin/env python3
"""Claims about masks of texts, and of PyTorch's or JAX's functions, are proved or refuted by an example. Needs no GPU.

  ATTNC_LIBRARY=libattnc.so python3 proofs_test.py [-v ...]

Takes torch, else jax; without them, tests of functions are skipped, as are those that need Z3 without it.
"""

import functools
import importlib
import operator
import types
import unittest

import needs  # finds attnc
import attnc
from attnc.proofs import _holds_jax as holds_jax

PACKED = """
doc: i32[KV_LEN]
def mask_mod(b, h, q_idx, kv_idx):
    return (q_idx >= kv_idx) & (doc[q_idx] == doc[kv_idx])
"""


def arrays():
    """Returns a function that makes an array of PyTorch or JAX; None if neither is installed."""
    for name, make in (("torch", "tensor"), ("jax.numpy", "array")):
        try:
            return getattr(importlib.import_module(name), make)
        except ImportError:
            pass


array = arrays()


def needs_solver(test):
    @functools.wraps(test)
    def run(self):
        try:
            attnc.prove("q_idx // 7 == kv_idx // 7", "abs(q_idx - kv_idx) < 7")
        except attnc.Undecided as error:
            self.skipTest(f"SKIPPED: {error}")
        test(self)

    return run


class Claims(unittest.TestCase):
    def refuted(self, *args, **kwargs):
        with self.assertRaises(attnc.Refuted) as found:
            attnc.prove(*args, **kwargs)
        return found.exception.proof


class Texts(Claims):
    def test_answers(self):
        self.assertEqual(attnc.prove("q_idx >= kv_idx", "kv_idx <= q_idx").answer, "proved")
        self.assertEqual(attnc.prove("q_idx >= kv_idx", every_row_lives=True).by, "intervals")
        proof = self.refuted(PACKED, never="doc[kv_idx] == -1")
        self.assertEqual((proof.claim, proof.answer, proof.by), ("never doc[kv_idx] == -1", "refuted", "examples"))
        found = proof.example
        self.assertEqual(found.captures, {"doc": {(found.kv_idx,): -1}})
        self.assertEqual(found.extents["B"], 1)
        self.assertIn("X", found.picture)
        self.assertEqual(list(found.deciding), [4])
        for part in ("refuted: never doc[kv_idx] == -1, by examples", f"doc[{found.kv_idx}] = -1", "  X"):
            self.assertIn(part, str(proof))

    def test_failures_are_of_assertions(self):
        with self.assertRaisesRegex(AssertionError, "refuted: kv_idx < q_idx"):
            attnc.prove("q_idx >= kv_idx", "kv_idx < q_idx")

    def test_rows(self):
        window = "w: int\ndef mask_mod(b, h, q_idx, kv_idx):\n    return (q_idx >= kv_idx) & (q_idx - kv_idx < w)"
        dead = self.refuted(window, every_row_lives=True).example
        self.assertIsNone(dead.kv_idx)
        self.assertLess(dead.captures["w"], 2)
        self.assertNotIn("kv_idx", str(dead).splitlines()[0])

    def test_mods_and_their_scores(self):
        mod = attnc.Mod.parse("FAR = 4\ndef mask_mod(b, h, q_idx, kv_idx):\n    return q_idx - kv_idx < FAR", defines={"FAR": 9})
        self.assertTrue(attnc.prove(mod, "q_idx - kv_idx < FAR", assume="q_idx >= 0"))  # as it was defined
        self.refuted(mod, "q_idx - kv_idx < 4")
        self.refuted("score * 2", same_as="score * 3")  # masks are the same

    def test_weights(self):
        mod = lambda text: attnc.Mod.parse(f"def prob_mod(prob, b, h, q_idx, kv_idx):\n    return {text}\n")
        attnc.prove(mod("prob / 4 * 2"), same_as=mod("prob * 0.5"))
        self.refuted(mod("prob * 0.5"), same_as=mod("prob * 0.25"))
        self.refuted(mod("prob * 0.5"), same_as="True")
        self.refuted(mod("prob * prob"), same_as=mod("prob"))
        self.refuted(mod("prob * prob"), same_as=mod("prob * prob * prob"))

    def test_caches(self):
        corner = "q_idx + KV_LEN - Q_LEN >= kv_idx"
        attnc.prove("q_idx >= kv_idx", "kv_idx <= q_idx", kv_lengths=True)
        attnc.prove("q_idx >= kv_idx", "kv_idx <= q_idx", kv_lengths=True, q_offsets=True)
        found = self.refuted(corner, "kv_idx <= q_idx", kv_lengths=True, assume="Q_LEN <= KV_LEN").example
        self.assertEqual(found.q_offset, found.kv_length - found.extents["Q_LEN"])
        self.assertIn(f"kv_length {found.kv_length}, q_offset {found.q_offset}: b 0", str(found))
        self.assertIsNone(self.refuted(corner, "kv_idx < q_idx").example.kv_length)

    @needs_solver
    def test_scores(self):
        self.assertTrue(attnc.prove("score * 2", same_as="score + score"))

    def test_undecided_says_what_to_install(self):
        with self.assertRaises(attnc.Undecided) as found:
            attnc.prove("q_idx >= kv_idx", every_row_lives=True, assume=["q_idx < 0", "q_idx > 0"])
        self.assertIn("assumptions", found.exception.proof.why)

    def test_what_is_no_claim(self):
        causal = "q_idx >= kv_idx"
        for error, part, kwargs in (
            (attnc.ArgumentError, "no claim", {}),
            (attnc.ArgumentError, "holds and every_row_lives", {"holds": causal, "every_row_lives": True}),
            (attnc.ArgumentError, "is given a int", {"holds": 3}),
            (attnc.ArgumentError, "seconds is -1", {"holds": causal, "seconds": -1}),
            (attnc.ModError, "`score` is not defined", {"holds": "score > 1"}),
            (attnc.RunError, "is empty", {"never": " "}),
            (attnc.RunError, "captures no tensor `doc`", {"every_row_lives": True, "assume": "doc does not decrease"}),
        ):
            with self.subTest(part), self.assertRaisesRegex(error, part):
                attnc.prove(causal, **kwargs)


@unittest.skipIf(array is None, "SKIPPED: neither torch nor jax is installed")
class Functions(Claims):
    def setUp(self):
        # Documents of a packed sequence, with padding; 8 keys.
        self.doc = doc = array([0, 0, 1, 1, 2, 2, -1, -1])
        self.packed = lambda b, h, q, k: (q >= k) & (doc[q] == doc[k])

    @needs_solver
    def test_documents(self):
        doc, packed = self.doc, self.packed
        attnc.prove(packed, lambda b, h, q, k: k <= q)
        attnc.prove(packed, never=lambda b, h, q, k: doc[q] != doc[k])
        attnc.prove(packed, never="doc[q_idx] != doc[kv_idx]")  # as the function names it
        attnc.prove(packed, every_row_lives=True)
        proof = self.refuted(packed, never=lambda b, h, q, k: doc[k] == -1)
        self.assertEqual(list(proof.example.captures["doc"].values()), [-1])
        self.assertRegex(proof.claim, r"never the lambda in proofs_test.py:\d+")

    def test_leaks(self):
        """Documents that leak, padding that sees itself, a window that is off by one."""
        doc, lengths = self.doc, array([3, 8])
        self.refuted(lambda b, h, q, k: (q >= k) & (doc[q] >= 0), lambda b, h, q, k: doc[q] == doc[k])
        self.refuted(lambda b, h, q, k: (q < lengths[b]) == (k < lengths[b]), lambda b, h, q, k: k < lengths[b])
        window = self.refuted(lambda b, h, q, k: (q >= k) & (q - k <= 4), lambda b, h, q, k: q - k < 4).example
        self.assertEqual(window.q_idx - window.kv_idx, 4)

    def test_tensors_with_one_name_are_told_apart(self):
        def other():
            doc = array([0, 1, 2, 3, 4, 5, 6, 7])
            return lambda b, h, q, k: doc[q] == doc[k]

        self.refuted(self.packed, other())

    @needs_solver
    def test_queries_stay_inside_what_they_index(self):
        """doc has an element for each key, so launches with more queries than keys are none."""
        doc, ends = self.doc, array([1, 2, 3, 4])
        attnc.prove(lambda b, h, q, k: (q >= k) & (doc[k] >= doc[q]), "doc[q_idx] == doc[kv_idx]",
                    assume="doc does not decrease")  # fmt: skip
        attnc.prove(lambda b, h, q, k: doc[q] == doc[k], every_row_lives=True)
        # ends has 4 elements, doc 8: there are as many queries as the shorter has.
        attnc.prove(lambda b, h, q, k: doc[q] == ends[q], "Q_LEN <= 8")

    @needs_solver
    def test_positions_of_a_cache_stay_inside(self):
        doc, ends = self.doc, array([1, 2, 3, 4])
        attnc.prove(self.packed, every_row_lives=True, kv_lengths=True)
        for first, second in ((doc, ends), (ends, doc)):
            both = lambda b, h, q, k, x=first, y=second: x[q] == y[k]
            attnc.prove(both, "(q_idx < 8) & (kv_idx < 8)", kv_lengths=True)
            self.refuted(both, "q_idx < 7", q_offsets=True)

    @needs_solver
    def test_rewrites(self):
        doc = self.doc
        attnc.prove(self.packed, same_as=lambda b, h, q, k: ~((k > q) | (doc[k] != doc[q])))
        attnc.prove(lambda b, h, q, k: (q >= k) & (q - k < 4), same_as="(q_idx >= kv_idx) & (q_idx - kv_idx < 4)")
        self.refuted(lambda b, h, q, k: q >= k, same_as=lambda b, h, q, k: q > k)
        attnc.prove(lambda b, h, q, k: q >= k, same_as=lambda b, h, q, k: q > k, assume=lambda b, h, q, k: operator.ne(q, k))

    def test_block_masks_are_their_functions(self):
        self.refuted(types.SimpleNamespace(mask_mod=self.packed), lambda b, h, q, k: k < q)


class Doors(unittest.TestCase):
    def test_functions_that_hold_arrays_of_jax_are_told(self):
        """Where both torch and jax are imported."""
        x = types.new_class("Array", (), {}, lambda body: body.update(__module__="jaxlib.xla"))()

        class Mod:
            def __init__(self, x):
                self.x = x

            def mask(self, b, h, q, k):
                return self.x[q]

        for held in (x, 3):
            inner = lambda b, h, q, k, held=held: held  # noqa: E731
            functions = [
                Mod(held).mask, lambda b, h, q, k, held=held: held[q], lambda *args, f=inner: f(*args), lambda *args: inner(*args),
                functools.partial(lambda x, *args: x, held), functools.partial(lambda *args, x: x, x=[held]),
            ]  # fmt: skip
            self.assertEqual([holds_jax([function]) for function in functions], [held is x] * len(functions))


if __name__ == "__main__":
    unittest.main()
