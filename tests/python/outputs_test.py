#!/usr/bin/env python3
"""Checks outputs of mods, sums and maxima over live scores, in Python's doors: against those of a matrix of weights in
fp64.

  ATTNC_LIBRARY=libattnc.so python3 outputs_test.py [--device cuda] [-v ...]

Prints SKIPPED if torch is not installed, or finds no such device.
"""

import pathlib
import pickle
import unittest

import needs

needs.modules("attention")
import torch
from torch.fx.experimental.proxy_tensor import make_fx

import attnc
from attnc.torch import AuxOutput, AuxRequest, create_block_mask, explain, flex_attention

DEVICE = needs.device()
torch.set_default_device(DEVICE)
LIMIT = 1e-5 if DEVICE == "cpu" else 1e-4
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
        self.mask = create_block_mask(live, None, None, L, S, DEVICE)

    def attend(self, outputs, **more):
        return flex_attention(
            self.q, self.k, self.v, block_mask=self.mask, enable_gqa=True, outputs=outputs, return_aux=AuxRequest(), **more
        )

    def same(self, is_, be):
        torch.testing.assert_close(is_.double(), be, rtol=LIMIT, atol=LIMIT)

    def test_are_those_of_matrices(self):
        scores, weights = matrices(self.q, self.k)
        out, aux = self.attend(OUTPUTS)
        self.assertEqual(aux._fields[:2], AuxOutput._fields)
        self.same(aux.sums, weights.sum(-2))
        self.same(aux.rows, scores.amax(-1))
        self.same(aux.max_logit, scores.amax((-1, -2)))
        self.same(out, weights @ self.v.double().repeat_interleave(H // HKV, dim=1))
        loaded = pickle.loads(pickle.dumps(aux))
        self.assertEqual(loaded._fields, aux._fields)
        self.same(loaded.sums, aux.sums.double())

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

    def test_maxima_refuse_to_be_zero_gradients(self):
        self.q.requires_grad_()
        out, aux = self.attend(OUTPUTS)
        self.same(aux.sums.detach(), matrices(self.q, self.k)[1].sum(-2))
        out.sum().backward(retain_graph=True)  # which has nothing to do with them
        self.assertGreater(self.q.grad.abs().sum(), 0)
        with self.assertRaisesRegex(NotImplementedError, "a maximum has no gradient: take the loss of a sum"):
            aux.max_logit.sum().backward(retain_graph=True)
        with self.assertRaisesRegex(NotImplementedError, "leave create_graph out"):
            torch.autograd.grad(aux.sums.sum(), self.q, create_graph=True)

    def test_are_explained(self):
        q = torch.randn(1, 2, 256, 64, dtype=torch.bfloat16)
        sums, size = {"sums": OUTPUTS["sums"]}, {"size": attnc.reduce_sum(logit, "B H")}
        try:
            plain, found, fast, slow = (
                explain(q, q, q, outputs=outputs, return_aux=AuxRequest(), training=training, arch="sm_90a")["kernel"]
                for outputs, training in ((None, False), (sums, False), (sums, True), (size, True))
            )
        except attnc.RunError as error:
            if "nvrtc" in str(error):
                self.skipTest(f"SKIPPED: {error}")
            raise
        self.assertGreater(len(found["launches"]), len(plain["launches"]))
        self.assertEqual((fast["family"], fast["outputGradients"]), ("sm90", ["sums_gradient"]))
        self.assertEqual((slow["family"], slow["outputGradients"]), ("naive", ["size_gradient"]))
        with self.assertRaisesRegex(ValueError, "without return_aux"):
            explain(q, q, q, outputs=sums, arch="sm_90a")

    def test_say_what_is_wrong(self):
        for outputs, error, words in (
            ({"x": weight}, TypeError, "output 'x' is a function: give attnc.reduce_sum"),
            ([weight], TypeError, "outputs is a list: give a dict"),
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

    def test_transforms_of_torch_func_are_refused(self):
        with self.assertRaisesRegex(NotImplementedError, "outputs of a mod are not computed under transforms"):
            torch.func.grad(lambda q: flex_attention(
                q, self.k, self.v, enable_gqa=True, outputs=OUTPUTS, return_aux=AuxRequest())[1].sums.sum()
            )(self.q)  # fmt: skip


class GraphsTest(unittest.TestCase):
    """Outputs in graphs of torch.compile, torch.export and make_fx, against those of plain calls."""

    def setUp(self):
        torch.manual_seed(1)
        torch.compiler.reset()
        self.sinks, self.far = torch.randn(H), torch.randn(64)

    def operands(self, length, batch=B):
        return [torch.randn(batch, heads, length, D).requires_grad_() for heads in (H, HKV, HKV)]

    def attend(self, q, k, v):
        def mass(prob, score, b, h, q_idx, kv_idx):
            return prob * self.far[kv_idx] + 0.01 * score * score

        return flex_attention(
            q, k, v, enable_gqa=True, prob_mod=lambda prob, b, h, q_idx, kv_idx: prob * (kv_idx % 3),
            sink_mod=lambda b, h, q_idx: self.sinks[h], return_aux=AuxRequest(lse=True),
            outputs={**OUTPUTS, "mass": attnc.reduce_sum(mass, "B H")},
        )  # fmt: skip

    def same(self, is_, be):
        self.assertEqual(is_[1]._fields, be[1]._fields)
        self.near([is_[0], *is_[1]], [be[0], *be[1]])

    def near(self, is_, be):
        torch.testing.assert_close(is_, be, rtol=LIMIT, atol=LIMIT)

    def gradients(self, results, leaves):
        out, aux = results
        return torch.autograd.grad(out.square().sum() + aux.sums.square().sum() + aux.mass.sum(), leaves)

    def compiled(self, function, **how):
        return torch.compile(function, fullgraph=True, backend="aot_eager", **how)

    def test_outputs_and_gradients_of_their_sums(self):
        attend, operands = self.compiled(self.attend), self.operands(L)
        self.same(attend(*operands), self.attend(*operands))
        wanted = self.gradients(self.attend(*operands), operands)
        self.near(self.gradients(attend(*operands), operands), wanted)
        loss = self.compiled(lambda *operands: self.attend(*operands)[1].mass.sum())(*operands)  # and no more in the graph
        wanted = torch.autograd.grad(self.attend(*operands)[1].mass.sum(), operands[:2])
        self.near(torch.autograd.grad(loss, operands[:2]), wanted)

    def test_functions_without_a_score_mod_or_scores(self):
        def attend(q, k, v):
            sums = {"sums": OUTPUTS["sums"]}
            return flex_attention(q, k, v, enable_gqa=True, outputs=sums, return_aux=AuxRequest())

        operands = self.operands(L)
        self.same(self.compiled(attend)(*operands), attend(*operands))

    def test_lengths_may_change(self):
        torch._dynamo.utils.counters.clear()
        attend = self.compiled(self.attend, dynamic=True)
        for length, batch in ((L, 3), (40, 5), (48, 3)):
            operands = self.operands(length, batch)
            self.same(attend(*operands), self.attend(*operands))
            wanted = self.gradients(self.attend(*operands), operands)
            self.near(self.gradients(attend(*operands), operands), wanted)
        self.assertEqual(torch._dynamo.utils.counters["stats"]["unique_graphs"], 1)

    @unittest.skipIf(DEVICE != "cpu", "an error on the GPU ends its context")
    def test_maxima_refuse_gradients_that_are_not_0(self):
        operands = self.operands(L)
        out, aux = self.compiled(self.attend)(*operands)
        wanted = torch.autograd.grad(self.attend(*operands)[0].sum(), operands)
        self.near(torch.autograd.grad(out.sum(), operands, retain_graph=True), wanted)
        with self.assertRaisesRegex(RuntimeError, "a maximum has no gradient: take the loss of a sum"):
            aux.max_logit.sum().backward()

    def test_are_exported(self):
        class Model(torch.nn.Module):
            def forward(model, *operands):
                return self.attend(*operands)

        axes = {0: torch.export.Dim.AUTO, 2: torch.export.Dim.AUTO}
        operands = self.operands(L)
        exported = torch.export.export(Model(), tuple(operands), dynamic_shapes=((axes,) * 3,), strict=False).module()
        self.same(exported(*operands), self.attend(*operands))
        operands = self.operands(48)
        self.same(exported(*operands), self.attend(*operands))

    def test_are_recorded(self):
        operands = [x.detach() for x in self.operands(L)]
        self.same(make_fx(lambda q, k, v: self.attend(q, k, v))(*operands)(*operands), self.attend(*operands))

    def test_functions_that_are_not_traced_break_the_graph(self):
        def weight(prob, score, b, h, q_idx, kv_idx):
            torch._dynamo.graph_break()
            return prob * self.far[kv_idx] + score

        def attend(q, k, v):
            return flex_attention(
                q, k, v, enable_gqa=True, outputs={"sums": attnc.reduce_sum(weight, "B H")}, return_aux=AuxRequest()
            )

        operands = self.operands(L)
        self.same(torch.compile(attend, backend="aot_eager")(*operands), attend(*operands))

    def test_functions_are_named_in_errors(self):
        for function, words in (
            (lambda prob, score, b, h, q_idx, kv_idx: (prob, score), "returns a tuple"),
            (lambda prob, score, b, h, q_idx, kv_idx: torch.special.bessel_j0(prob), "output uses aten.special_bessel_j0"),
        ):
            outputs = {"sums": attnc.reduce_sum(function, "B H")}
            attend = lambda *qkv: flex_attention(*qkv, enable_gqa=True, outputs=outputs, return_aux=AuxRequest())  # noqa: E731
            with self.subTest(words), self.assertRaisesRegex(Exception, words):
                self.compiled(attend)(*self.operands(L))


def surprise(prob, score, b, h, q_idx, kv_idx):
    return torch.where(prob > 0, -prob * torch.log(prob), 0.0)


class GradientsTest(unittest.TestCase):
    """Gradients of losses that read outputs, against autograd of matrices in fp64."""

    def setUp(self):
        torch.manual_seed(1)
        shapes = (B, H, L, D), (B, HKV, S, D), (B, HKV, S, D), (H,), (S,), (H,)
        self.leaves = [torch.randn(shape).requires_grad_() for shape in shapes]  # q, k, v, slopes, far, sinks
        self.mask = create_block_mask(live, None, None, L, S, DEVICE)
        self.weighs = {name: torch.randn(shape) for name, shape in (
            ("out", (B, H, L, D)), ("lse", (B, H, L)), ("sums", (B, H, S)), ("entropy", (B, H, L)), ("mass", (B, H)),
        )}  # fmt: skip

    def loss_of(self, results, read):
        of_rows = torch.arange(L) % 7 != 3
        return sum([((results[name] * self.weighs[name])[..., of_rows] if name == "lse" else results[name] * self.weighs[name])
                    .sum() for name in read])  # fmt: skip

    def computed(self, read, has_sinks=False, prob_mod=None):
        q, k, v, slopes, far, sinks = self.leaves

        def mass(prob, score, b, h, q_idx, kv_idx):
            return (prob * far[kv_idx] + 0.01 * score * score) * (q_idx >= 8)

        outputs = {
            "sums": attnc.reduce_sum(weight, "B H KV_LEN"), "entropy": attnc.reduce_sum(surprise, "B H Q_LEN"),
            "mass": attnc.reduce_sum(mass, "B H"), "top": attnc.reduce_max(weight, "B H"),
        }  # fmt: skip
        out, aux = flex_attention(
            q, k, v, score_mod=lambda score, b, h, q_idx, kv_idx: torch.tanh(score) * 2 + slopes[h] * kv_idx * 0.1,
            block_mask=self.mask, enable_gqa=True, outputs=outputs, return_aux=AuxRequest(lse=True), prob_mod=prob_mod,
            sink_mod=(lambda b, h, q_idx: sinks[h]) if has_sinks else None,
        )  # fmt: skip
        return self.gradients(self.loss_of({"out": out, **aux._asdict()}, read), self.leaves)

    def wanted(self, read, has_sinks=False, factor=1):
        leaves = [x.detach().double().requires_grad_() for x in self.leaves]
        q, k, v, slopes, far, sinks = leaves
        rows, columns = torch.arange(L)[:, None], torch.arange(S)
        is_live = live(0, 0, rows, columns)
        scores = torch.tanh(q @ k.repeat_interleave(H // HKV, dim=1).mT * D**-0.5) * 2 + slopes[:, None, None] * columns * 0.1
        terms = scores.exp() * is_live
        sums = terms.sum(-1, keepdim=True) + (sinks[:, None, None].exp() if has_sinks else 0)
        weights = terms / sums.where(sums > 0, 1)
        logs = weights.where(weights > 0, 1).log()
        results = {
            "out": (weights * factor) @ v.repeat_interleave(H // HKV, dim=1), "lse": sums.where(sums > 0, 1).log()[..., 0],
            "sums": weights.sum(-2), "entropy": -(weights * logs).sum(-1),
            "mass": ((weights * far + 0.01 * scores * scores) * (is_live & (rows >= 8))).sum((-1, -2)),
        }  # fmt: skip
        return self.gradients(self.loss_of(results, read), leaves)

    @staticmethod
    def gradients(loss, leaves):
        found = torch.autograd.grad(loss, leaves, allow_unused=True)
        return [torch.zeros_like(x) if one is None else one for x, one in zip(leaves, found)]

    def check(self, computed, wanted):
        for name, is_, be in zip(("q", "k", "v", "slopes", "far", "sinks"), computed, wanted):
            with self.subTest(name):
                torch.testing.assert_close(is_.double(), be, rtol=10 * LIMIT, atol=LIMIT)

    def test_of_each_output_and_of_all(self):
        for read in (["sums"], ["entropy"], ["mass"], ["out", "sums"], list(self.weighs)):
            with self.subTest(read=read):
                self.check(self.computed(read), self.wanted(read))

    def test_of_weights_in_16_bits(self):
        """On GPUs, in kernels with tensor cores: no output reads the score."""
        for width in (64, 128):
            operands = [torch.randn(B, heads, 150, width, dtype=torch.bfloat16).requires_grad_() for heads in (H, HKV, HKV)]
            outputs = {"sums": attnc.reduce_sum(weight, "B H KV_LEN"), "entropy": attnc.reduce_sum(surprise, "B H Q_LEN")}
            of_sums, of_entropy = torch.randn(B, H, 150), torch.randn(B, H, 150)
            mask = create_block_mask(lambda b, h, q_idx, kv_idx: q_idx >= kv_idx, None, None, 150, 150, DEVICE)
            out, aux = flex_attention(
                *operands, block_mask=mask, enable_gqa=True, outputs=outputs, return_aux=AuxRequest()
            )  # fmt: skip
            loss = out.float().square().sum() + (aux.sums * of_sums).sum() + (aux.entropy * of_entropy).sum()
            q, k, v = leaves = [x.detach().double().requires_grad_() for x in operands]
            k, v = (x.repeat_interleave(H // HKV, dim=1) for x in (k, v))
            scores = (q @ k.mT * width**-0.5).masked_fill(torch.ones(150, 150).triu(1) > 0, -torch.inf)
            weights = scores.softmax(-1)
            entropy = -torch.special.xlogy(weights, weights.clamp(min=1e-300)).sum(-1)
            wanted = (weights @ v).square().sum() + (weights.sum(-2) * of_sums).sum() + (entropy * of_entropy).sum()
            for is_, be in zip(torch.autograd.grad(loss, operands), torch.autograd.grad(wanted, leaves)):
                torch.testing.assert_close(is_.double(), be, rtol=0.02, atol=0.02 * float(be.abs().max()))

    def test_weights_count_sinks_and_no_prob_mod(self):
        read = list(self.weighs)
        self.check(self.computed(read, has_sinks=True), self.wanted(read, has_sinks=True))
        thinned = lambda prob, b, h, q_idx, kv_idx: prob * (kv_idx % 3)  # noqa: E731
        self.check(self.computed(read, prob_mod=thinned), self.wanted(read, factor=torch.arange(S) % 3))

    def test_stop_where_functions_detach(self):
        q, k = self.leaves[0], self.leaves[1].repeat_interleave(H // HKV, dim=1).detach()
        outputs = {"sums": attnc.reduce_sum(lambda prob, score, b, h, q_idx, kv_idx: prob.detach() * score, "B H")}
        sums = flex_attention(q, k, k, outputs=outputs, return_aux=AuxRequest())[1].sums
        scores = q @ k.mT * D**-0.5
        (be,) = torch.autograd.grad((scores.softmax(-1).detach() * scores).sum(), q)
        torch.testing.assert_close(torch.autograd.grad(sums.sum(), q)[0], be, rtol=10 * LIMIT, atol=LIMIT)

    def test_captures_with_the_name_of_a_gradient(self):
        q, k, v = self.leaves[:3]
        sums_gradient = self.leaves[3]
        attend = lambda: flex_attention(  # noqa: E731
            q, k, v, lambda score, b, h, q_idx, kv_idx: score + sums_gradient[h] * kv_idx, enable_gqa=True,
            outputs={"sums": attnc.reduce_sum(weight, "B H KV_LEN")}, return_aux=AuxRequest(),
        )  # fmt: skip
        scores = q @ k.repeat_interleave(H // HKV, dim=1).mT * D**-0.5 + sums_gradient[:, None, None] * torch.arange(S)
        out = scores.softmax(-1) @ v.repeat_interleave(H // HKV, dim=1)
        leaves = q, k, v, sums_gradient
        computed, wanted = (torch.autograd.grad(x.square().sum(), leaves) for x in (attend()[0], out))
        for is_, be in zip(computed, wanted):
            torch.testing.assert_close(is_, be, rtol=1e-3, atol=1e-3)
        with self.assertRaisesRegex(ValueError, "sums_gradient is captured, and is the name of an output's gradient"):
            attend()[1].sums.sum().backward()

    def test_maxima_may_be_changed_in_place(self):
        maxima = {"top": OUTPUTS["max_logit"]}
        out, aux = flex_attention(*self.leaves[:3], enable_gqa=True, outputs=maxima, return_aux=AuxRequest())
        aux.top.clamp_(max=1.0)
        self.assertGreater(torch.autograd.grad(out.sum(), self.leaves[0])[0].abs().sum(), 0)

    def test_regularise(self):
        """A step against the entropy of the weights lowers it."""
        q = self.leaves[0]

        def entropy():
            outputs = {"entropy": attnc.reduce_sum(surprise, "B H Q_LEN")}
            return flex_attention(
                q, *self.leaves[1:3], enable_gqa=True, outputs=outputs, return_aux=AuxRequest()
            )[1].entropy.mean()  # fmt: skip

        before = entropy()
        before.backward()
        with torch.no_grad():
            q -= 50 * q.grad
        self.assertLess(entropy().item(), before.item() - 0.01)


if __name__ == "__main__":
    unittest.main()
