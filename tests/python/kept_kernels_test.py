#!/usr/bin/env python3
"""Tests that attnc.attention prepares kernels once for operands of one form. No GPU is used.

  ATTNC_LIBRARY=libattnc.so python3 kept_kernels_test.py

Prints SKIPPED if torch is not installed.
"""

import sys
import unittest
from unittest import mock

import needs

needs.modules("torch")
import attnc
import torch
from attnc.launch import Launch, Sequences

ATTENTION = sys.modules["attnc.attention"]
TEXT = "t: f32[H]\nw: int\ndef score_mod(score, b, h, q, k):\n    return torch.where(q - k < w, score + t[h], -float('inf'))"
Q, KV = (1, 4, 24, 16), (1, 2, 40, 16)


def drawn(shape=Q, dtype=torch.float16):
    return torch.zeros(shape, dtype=dtype)


class KeptKernels(unittest.TestCase):
    def setUp(self):
        self.mod, self.context = attnc.Mod.parse(TEXT), 1

    def kernels(self, q=None, k=None, v=None, *, width=4, w=3, members=(), return_lse=False, mod=None, **sequences):
        q, k, v = (drawn(shape) if x is None else x for x, shape in ((q, Q), (k, KV), (v, KV)))
        how = Launch({}, None, None, Sequences(**sequences), None, mod or self.mod, None)
        given = ATTENTION.Given(how, q, k, v, {"t": torch.zeros(width), "w": w}, return_lse, None)
        with mock.patch.object(ATTENTION, "prepared", lambda *_, **__: object()):
            with mock.patch.object(ATTENTION, "current_context", lambda: self.context):
                return given.kernels((), members)

    def test_other_addresses_keep_kernels(self):
        self.assertIs(self.kernels(), self.kernels())

    def test_other_contexts_and_later_tunings_get_their_own(self):
        first = self.kernels()
        self.context = 2
        second = self.kernels()
        self.assertIsNot(second, first)
        with mock.patch.object(attnc.Mod, "_tunings", 1):
            self.assertIsNot(self.kernels(), second)
        self.assertIs(self.kernels(), second)

    def test_other_forms_get_their_own(self):
        k = drawn(KV)
        lengths = {"kv_lengths": torch.zeros(1, dtype=torch.int32)}
        ragged = {"cu_seqlens_q": torch.tensor([0, 24], dtype=torch.int32)}
        forms = {
            "as given": {}, "more rows": {"q": drawn((1, 4, 25, 16))}, "bf16": {"q": drawn(dtype=torch.bfloat16)},
            "other strides": {"q": drawn((1, 24, 4, 16)).transpose(1, 2)}, "v is k": {"k": k, "v": k},
            "odd address": {"q": torch.zeros(4 * 24 * 16 + 1, dtype=torch.float16)[1:].view(Q)},
            "with lse": {"return_lse": True}, "a longer capture": {"width": 5}, "an option": {"members": (("tf32", 1),)},
            "lengths": lengths, "ragged": ragged, "ragged, a bound": {**ragged, "max_q_len": 24},
            "another number": {"w": 9}, "another mod": {"mod": attnc.Mod.parse(TEXT)},
        }  # fmt: skip
        found = {name: self.kernels(**form) for name, form in forms.items()}
        self.assertEqual(len(set(map(id, found.values()))), len(forms))
        self.assertIs(self.kernels(**forms["ragged"]), found["ragged"])

    def test_only_so_many_are_kept(self):
        with mock.patch.object(ATTENTION, "_MOST_KEPT", 2):
            for rows in (1, 2, 3):
                self.kernels(q=drawn((1, 4, rows, 16)))
        self.assertEqual(len(self.mod._prepared), 1)


if __name__ == "__main__":
    unittest.main()
