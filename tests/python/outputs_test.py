#!/usr/bin/env python3
"""Checks outputs of mods, sums and maxima over live scores, in Python's doors: against those of a matrix of weights in
fp64.

  ATTNC_LIBRARY=libattnc.so python3 outputs_test.py [-v ...]

Runs on the CPU. Prints SKIPPED if torch is not installed.
"""

import pathlib
import unittest

import needs

needs.modules("attention")
import torch

import attnc
from attnc.torch import AuxOutput, AuxRequest, create_block_mask, flex_attention

B, H, HKV, L, S, D = 2, 4, 2, 33, 40, 16
MODS = pathlib.Path(__file__).parents[2] / "dsl/mods"


def live(b, h, q_idx, kv_idx):
    """Row 3 of 7 sees nothing."""
    return (q_idx >= kv_idx) & (q_idx % 7 != 3)


def weight(prob, score, b, h, q_idx, kv_idx):
    return prob


def logit(prob, score, b, h, q_idx, kv_idx):
    return score


OUTPUTS = {
    "sums": attnc.reduce_sum(weight, "B H KV_LEN"),
    "rows": attnc.reduce_max(logit, "B H Q_LEN"),
    "max_logit": attnc.reduce_max(logit, "B H"),
}


def matrices(q, k, slopes=None):
    """Returns scores and weights in fp64; scores that are masked are -inf."""
    q, k = q.double(), k.double().repeat_interleave(H // HKV, dim=1)
    rows, columns = torch.arange(L)[:, None], torch.arange(S)
    scores = q @ k.mT * D**-0.5
    if slopes is not None:
        scores = scores + slopes.double()[:, None, None] * columns
    scores = scores.masked_fill(~live(0, 0, rows, columns), -torch.inf)
    return scores, scores.softmax(-1).nan_to_num(0.0)


class OutputsTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(1)
        self.q, self.k, self.v = torch.randn(B, H, L, D), torch.randn(B, HKV, S, D), torch.randn(B, HKV, S, D)
        self.mask = create_block_mask(live, None, None, L, S, "cpu")

    def attend(self, outputs, **more):
        return flex_attention(
            self.q, self.k, self.v, block_mask=self.mask, enable_gqa=True, outputs=outputs, return_aux=AuxRequest(), **more
        )

    def same(self, is_, be):
        torch.testing.assert_close(is_.double(), be, rtol=1e-5, atol=1e-5)

    def test_are_those_of_matrices(self):
        scores, weights = matrices(self.q, self.k)
        out, aux = self.attend(OUTPUTS)
        self.assertEqual(aux._fields[:2], AuxOutput._fields)
        self.same(aux.sums, weights.sum(-2))
        self.same(aux.rows, scores.amax(-1))
        self.same(aux.max_logit, scores.amax((-1, -2)))
        self.same(out, weights @ self.v.double().repeat_interleave(H // HKV, dim=1))

    def test_read_captures_and_what_score_mod_returned(self):
        slopes, far = torch.randn(H), torch.randn(S)
        scores, weights = matrices(self.q, self.k, slopes)
        of_window = lambda prob, score, b, h, q_idx, kv_idx: prob * far[kv_idx] * (q_idx >= L - 8)  # noqa: E731
        outputs = {"window": attnc.reduce_sum(of_window, "B H KV_LEN"), "logits": OUTPUTS["max_logit"]}
        for _ in range(2):  # also like an earlier call
            _, aux = self.attend(outputs, score_mod=lambda score, b, h, q_idx, kv_idx: score + slopes[h] * kv_idx)
            self.same(aux.window, weights[:, :, -8:].sum(-2) * far.double())
            self.same(aux.logits, scores.amax((-1, -2)))
            far += 1  # which each call reads

    def test_of_texts(self):
        mods = [attnc.Mod.load(MODS / f"{name}.py") for name in ("column_sums", "entropy", "max_logit")]
        self.assertEqual([str(output) for mod in mods for output in mod.outputs],
                         ["column_sums: f32[B, H, KV_LEN]", "entropy: f32[B, H, Q_LEN]", "max_logit: f32[B, H]"])  # fmt: skip
        global live
        kept, live = live, lambda b, h, q_idx, kv_idx: q_idx >= kv_idx
        try:
            scores, weights = matrices(self.q, self.k)
        finally:
            live = kept
        wanted = weights.sum(-2), -torch.special.xlogy(weights, weights).sum(-1), scores.amax((-1, -2))
        for mod, be in zip(mods, wanted):
            out, lse, outputs = attnc.attention(mod, self.q, self.k, self.v, return_lse=True, return_outputs=True)
            self.same(outputs[mod.outputs[0].name], be)
            self.same(lse, scores.logsumexp(-1))
            self.assertEqual(out.shape, (B, H, L, D))

    def test_compute_nothing_unless_wanted(self):
        mod = attnc.Mod.load(MODS / "max_logit.py")
        self.assertIsInstance(attnc.attention(mod, self.q, self.k, self.v), torch.Tensor)
        _, outputs = attnc.attention("q_idx >= kv_idx", self.q, self.k, self.v, return_outputs=True)
        self.assertEqual(outputs, {})

    def test_refuse_to_be_zero_gradients(self):
        self.q.requires_grad_()
        out, aux = self.attend(OUTPUTS)
        self.same(aux.sums.detach(), matrices(self.q, self.k)[1].sum(-2))
        out.sum().backward(retain_graph=True)  # which has nothing to do with them
        self.assertGreater(self.q.grad.abs().sum(), 0)
        with self.assertRaisesRegex(NotImplementedError, "outputs of a mod have no gradients: call detach"):
            aux.max_logit.sum().backward()

    def test_say_what_is_wrong(self):
        for outputs, error, words in (
            ({"x": weight}, TypeError, "output 'x' is a function: give attnc.reduce_sum"),
            ({"x": attnc.reduce_sum(weight)}, ValueError, "output x is over None: give one of 'B H KV_LEN'"),
            ({"x": attnc.reduce_sum(weight, "B H N")}, ValueError, "output x is over 'B H N'"),
            ({"x y": attnc.reduce_sum(weight, "B H")}, ValueError, "output 'x y' has no name"),
            ({"lse": attnc.reduce_sum(weight, "B H")}, ValueError, "output lse has the name of a member of AuxOutput"),
            ({"x": attnc.reduce_sum(3, "B H")}, TypeError, "output is a int: give a function of prob, score, b"),
            ({"x": attnc.reduce_sum(lambda prob: prob, "B H")}, Exception, "prob, score, b, h, q_idx"),
        ):
            with self.subTest(words), self.assertRaisesRegex(error, words):
                self.attend(outputs)
        with self.assertRaisesRegex(ValueError, "without return_aux"):
            flex_attention(self.q, self.k, self.v, enable_gqa=True, outputs=OUTPUTS)

    def test_break_graphs(self):
        compiled = torch.compile(lambda: self.attend(OUTPUTS)[1].sums, backend="aot_eager")
        self.same(compiled(), matrices(self.q, self.k)[1].sum(-2))


if __name__ == "__main__":
    unittest.main()
