#!/usr/bin/env python3
"""Checks flex_attention(kernel_options={"fp8": ...}) and its gradients against eager attention over fake-quantised
operands, whose gradients pass straight through.

  ATTNC_LIBRARY=libattnc.so python3 fp8_test.py [-v ...]

Prints SKIPPED if torch is not installed. Kernels of e4m3 need an sm_90a; the CPU computes by the reference.
"""

import unittest

import needs

needs.modules("attention")
import torch
from attention import by_definition, relative_error
from attnc.torch import AuxRequest, create_block_mask, flex_attention
from attnc.torch.fp8 import Rounding
from attnc.torch.graphs import is_traced
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.attention import flex_attention as flex

IS_SERVED = torch.cuda.is_available() and torch.cuda.get_device_capability() == (9, 0)
DEVICES = ["cpu"] + ["cuda"] * IS_SERVED
FP8 = {"fp8": True}


def operands(device, shape=(2, 4, 2, 150, 270, 32), dtype=torch.bfloat16, size=1.0, requires_grad=True):
    batch, heads, kv_heads, q_len, kv_len, width = shape
    generator = torch.Generator().manual_seed(1)
    shapes = (batch, heads, q_len, width), (batch, kv_heads, kv_len, width), (batch, kv_heads, kv_len, width)
    made = [size * torch.randn(s, generator=generator) for s in shapes]
    for x in made:
        x.view(-1)[::997] *= 10  # outliers
    return [x.to(device, dtype).requires_grad_(requires_grad) for x in made]


def causal(b, h, q, k):
    return q >= k


def rotation(width):
    """Returns random signs times a Hadamard matrix, as quantise.cu has them for seed 1."""
    power = width & -width
    hadamard = torch.ones(1, 1, dtype=torch.float64)
    while len(hadamard) < power:
        hadamard = torch.cat([torch.cat([hadamard, hadamard], 1), torch.cat([hadamard, -hadamard], 1)])
    signs = []
    for column in range(width):
        x = (0x9E3779B9 + column + 1) % 2**32
        x = (x ^ x >> 16) * 0x85EBCA6B % 2**32
        x = (x ^ x >> 13) * 0xC2B2AE35 % 2**32
        signs.append(-1.0 if (x ^ x >> 16) & 1 else 1.0)
    blocks = torch.block_diag(*[hadamard / power**0.5] * (width // power))
    return torch.diag(torch.tensor(signs, dtype=torch.float64)) @ blocks


def fake_quantised(x, turn=None, span="block"):
    """Returns x in fp64, rounded to e4m3 with scales of each `span`. Gradients pass straight through."""
    x = x.double()
    turned = x if turn is None else x @ turn
    rounded = torch.empty_like(turned)
    count = {"head": x.shape[2], "block": 128, "row": 1}[span]
    for first in range(0, x.shape[2], count):
        rows = turned.detach()[:, :, first : first + count].float()
        scale, exponent = torch.frexp((rows.abs().amax((2, 3), keepdim=True) / 448).clamp_min(2**-64))
        scale = torch.ldexp((16 * scale).ceil() / 16, exponent)  # as quantise() rounds it
        rounded[:, :, first : first + count] = (rows / scale).to(torch.float8_e4m3fn).double() * scale.double()
    return turned + (rounded - turned).detach()


def expected_of(q, k, v, score_mod=None, mask_mod=None, scale=None, span="block"):
    turn = rotation(q.shape[-1])
    rounded = [fake_quantised(x, of, span) for x, of in ((q, turn), (k, turn), (v, None))]
    return by_definition(score_mod, mask_mod, *rounded, scale)


class Fp8Test(unittest.TestCase):
    def near(self, actual, expected, limit=1e-2):
        self.assertEqual(actual.shape, expected.shape)
        self.assertLess(relative_error(actual, expected), limit)

    def each_device(self):
        for device in DEVICES:
            with self.subTest(device):
                yield device

    def compare(self, device, q, k, v, score_mod=None, mask_mod=None, attend=flex_attention, block_mask=None, learned=(),
                fp8=True, **options):  # fmt: skip
        """Compares results and gradients. Weights of kernels are rounded, by some 3 % of what they weigh."""
        if mask_mod is not None and block_mask is None:
            block_mask = create_block_mask(mask_mod, None, None, q.shape[2], k.shape[2], device=device)
        out, lse = attend(
            q, k, v, score_mod, block_mask, enable_gqa=True, return_lse=True, kernel_options={"fp8": fp8}, **options
        )
        self.assertEqual(out.dtype, q.dtype)
        generator = torch.Generator().manual_seed(3)
        dout, dlse = (torch.randn(x.shape, generator=generator).to(x) for x in (out, lse))
        grads = torch.autograd.grad([out, lse], (q, k, v, *learned), [dout, dlse])
        for x, of in zip(grads, (q, k, v, *learned)):
            self.assertEqual((x.dtype, x.shape), (of.dtype, of.shape))
        moved = [x.detach().cpu().requires_grad_() for x in (q, k, v)]
        cpu = [x.detach().cpu().requires_grad_() for x in learned]
        for x, y in zip(learned, cpu):
            x.on_cpu = y
        span = "block" if fp8 is True else fp8
        right = expected_of(*moved, score_mod=score_mod and by_cpu(score_mod), mask_mod=mask_mod, span=span, **options)
        wanted = torch.autograd.grad(right, (*moved, *cpu), [dout.double().cpu(), dlse.double().cpu()])
        limit = 1.5e-2 if device == "cpu" else 6e-2
        for actual, expected in zip((out, lse, *grads), (*right, *wanted)):
            live = expected.isfinite()
            self.assertTrue(torch.equal(actual.cpu().isfinite(), live))
            self.near(torch.where(live, actual.cpu().double(), 0), torch.where(live, expected, 0), limit)

    def test_results_and_gradients(self):
        for device in self.each_device():
            for dtype in (torch.bfloat16, torch.float16):
                self.compare(device, *operands(device, dtype=dtype), mask_mod=causal)
            table = torch.linspace(-1, 1, 4, device=device).requires_grad_()
            self.compare(device, *operands(device), Biased(table), causal, learned=[table], scale=0.3)

    def test_what_shares_a_scale(self):
        for device in self.each_device():
            for shape in ((2, 4, 2, 150, 270, 32), (1, 2, 1, 1, 129, 48), (1, 2, 2, 100, 70, 16)):
                for span in ("head", "block", "row"):
                    with self.subTest(shape=shape, span=span):
                        self.compare(device, *operands(device, shape), mask_mod=causal, fp8=span)

    def test_rows_of_many_sizes(self):
        """With a scale of its own, a small row keeps its bits. Kernels round weights times scales, and are not compared."""
        q, k, v = (x.detach() for x in operands("cpu", (1, 2, 2, 256, 256, 32)))
        sizes = torch.logspace(-10, 10, 256, 2)[:, None]
        v = (v * sizes[torch.randperm(256, generator=torch.Generator().manual_seed(1))]).to(v)
        mask = create_block_mask(lambda b, h, q, k: q == k, None, None, 256, 256, device="cpu")
        off = []
        for span in ("row", "block"):
            out = flex_attention(q, k, v, block_mask=mask, kernel_options={"fp8": span})
            off.append(float(((out - v).float().norm(dim=-1) / v.float().norm(dim=-1)).mean()))
        self.assertLess(off[0], 0.03)
        self.assertLess(2 * off[0], off[1])

    def test_shapes_and_layouts(self):
        for device in self.each_device():
            for shape in ((1, 2, 1, 1, 1, 16), (1, 1, 1, 129, 128, 48), (2, 3, 3, 7, 385, 96), (1, 2, 2, 64, 130, 128)):
                self.compare(device, *operands(device, shape))
            q, k, v = (x.detach() for x in operands(device))
            turned = [x.transpose(1, 2).contiguous().transpose(1, 2).requires_grad_() for x in (q, k, v)]
            out = flex_attention(*turned, enable_gqa=True, kernel_options=FP8)
            self.assertEqual(out.stride(), turned[0].stride())
            self.compare(device, *turned)
            wide = torch.cat([q, q], -1)[..., : q.shape[-1]], *(x.mT.contiguous().mT for x in (k, v))
            self.compare(device, *(x.requires_grad_() for x in wide), mask_mod=causal)
            one = torch.cat([v, v], -1).requires_grad_()  # a wider v
            self.compare(device, turned[0], turned[1], one)

    def test_rows_with_one_key(self):
        """Where one key has all weight, dv is dout, and little is left of dq and dk."""
        for device in self.each_device():
            generator = torch.Generator().manual_seed(1)
            noise, k, v = (torch.randn(1, 2, 256, 64, generator=generator).to(device, torch.bfloat16) for _ in range(3))
            q, k, v = (x.requires_grad_() for x in (0.2 * noise + 2 * k, k, v))
            out = flex_attention(q, k, v, scale=1.0, kernel_options=FP8)
            dq, dk, dv = torch.autograd.grad(out, (q, k, v), torch.ones_like(out))
            # a GPU adds up products of e4m3 to 14 bits, so scores of 130 err by 0.02
            self.near(dv.float(), torch.ones_like(dv).float(), 5e-2 if device == "cuda" else 1e-2)
            self.assertLess(max(float(x.abs().max()) for x in (dq, dk)), 0.3)

    def test_huge_tiny_and_empty(self):
        for device in self.each_device():
            for size in (1e-3, 10.0):
                self.compare(device, *operands(device, (1, 2, 2, 40, 200, 32), size=size), mask_mod=causal)
            q, k, v = operands(device, (1, 2, 2, 40, 200, 32))
            dead = create_block_mask(lambda b, h, q, k: q < 20, None, None, 40, 200, device=device)
            out, lse = flex_attention(q, k, v, None, dead, return_lse=True, kernel_options=FP8)
            grads = torch.autograd.grad(out.sum(), (q, k, v))
            self.assertTrue(all(x.isfinite().all() for x in grads))
            self.assertFalse(out[:, :, 20:].any() or grads[0][:, :, 20:].any())
            zeros = [torch.zeros_like(x).requires_grad_() for x in (q, k)]
            out = flex_attention(*zeros, v, kernel_options=FP8)
            self.assertTrue(all(x.isfinite().all() for x in torch.autograd.grad(out.sum(), (*zeros, v))))
            large = (q.detach() * 1e3).requires_grad_()
            huge = flex_attention(large, k, v, lambda score, b, h, q, k: score - 1e9, kernel_options=FP8)
            self.assertTrue(all(x.isfinite().all() for x in torch.autograd.grad(huge.sum(), (large, k, v))))
            none = [x[:, :, :0] for x in (q, k, v)]
            self.assertEqual(flex_attention(none[0], k, v, kernel_options=FP8).shape, none[0].shape)
            self.assertFalse(flex_attention(q, *none[1:], kernel_options=FP8).any())

    def test_auxiliary_results_and_lists(self):
        for device in self.each_device():
            q, k, v = operands(device, (1, 2, 2, 256, 256, 32))
            _, aux = flex_attention(q, k, v, kernel_options=FP8, return_aux=AuxRequest(lse=True, max_scores=True))
            turn = rotation(32)
            score = fake_quantised(q.cpu(), turn) @ fake_quantised(k.cpu(), turn).mT * 32**-0.5
            self.near(aux.max_scores.cpu().double(), score.amax(-1), 1e-2)
            mask = flex.create_block_mask(causal, None, None, 256, 256, device=device)
            self.compare(device, q, k, v, mask_mod=causal, block_mask=mask)
            with torch.no_grad():
                self.assertFalse(flex_attention(q, k, v, kernel_options=FP8).requires_grad)

    @unittest.skipUnless(is_traced, "this PyTorch breaks graphs")
    def test_graphs(self):
        for device in self.each_device():
            table = torch.linspace(-1, 1, 4, device=device).requires_grad_()
            biased = lambda score, b, h, q, k: score + table[h] * 0.5  # noqa: E731
            q, k, v = operands(device)
            mask = create_block_mask(causal, None, None, q.shape[2], k.shape[2], device=device)
            leaves = q, k, v, table
            for options in (FP8, {"fp8": "row"}, {"fp8": "head"}):
                self.compare_graphs(device, leaves, lambda q, k, v: flex_attention(
                    q, k, v, biased, mask, enable_gqa=True, kernel_options=options
                ))  # fmt: skip

    def compare_graphs(self, device, leaves, attend):
        q, k, v, _ = leaves
        out = attend(q, k, v)
        right = out, *torch.autograd.grad(out, leaves, torch.ones_like(out))
        for backend in ("aot_eager", "inductor") if device == "cuda" else ("aot_eager",):
            torch._dynamo.reset()
            out = torch.compile(attend, backend=backend, fullgraph=True)(q, k, v)
            self.assertTrue(torch.equal(out, right[0]))
            for actual, expected in zip(torch.autograd.grad(out, leaves, torch.ones_like(out)), right[1:]):
                self.near(actual.double(), expected.double(), 1e-2 if device == "cuda" else 1e-9)  # sums in any order
        graph = make_fx(attend)(q.detach(), k.detach(), v.detach())
        self.assertIn("attnc.attention", graph.code)
        self.assertTrue(torch.equal(graph(q, k, v), right[0]))

    @unittest.skipUnless(IS_SERVED, "needs an sm_90a")
    def test_cuda_graphs(self):
        q, k, v = operands("cuda", (2, 4, 2, 300, 300, 64))

        def step():
            out = flex_attention(q, k, v, None, None, enable_gqa=True, kernel_options=FP8)
            return out, *torch.autograd.grad(out, (q, k, v), torch.ones_like(out))

        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            step()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            found = step()
        for _ in range(2):
            with torch.no_grad():
                for x in (q, k, v):
                    x.mul_(0.5)
            graph.replay()
            for actual, expected in zip(found, step()):
                self.near(actual.float(), expected.float(), 1e-2)

    def test_refused(self):
        q, k, v = (x.detach() for x in operands("cpu"))
        for error, why, arguments, options in (
            (ValueError, "bfloat16 or float16", [x.float() for x in (q, k, v)], FP8),
            (NotImplementedError, "query has head dim 24", [x[..., :24] for x in (q, k, v)], FP8),
            (NotImplementedError, "value has head dim 8", [q, k, v[..., :8]], FP8),
            (TypeError, "fp8 is 'e4m3'; it must be True, False, .*'head', 'block', 'row'", [q, k, v], {"fp8": "e4m3"}),
            (TypeError, "fp8 is 1", [q, k, v], {"fp8": 1}),
        ):
            with self.assertRaisesRegex(error, why):
                flex_attention(*arguments, enable_gqa=True, kernel_options=options)
        plain = flex_attention(q, k, v, enable_gqa=True)
        self.assertTrue(torch.equal(plain, flex_attention(q, k, v, enable_gqa=True, kernel_options={"fp8": False})))
        self.assertFalse(torch.equal(plain, flex_attention(q, k, v, enable_gqa=True, kernel_options=FP8)))


class Fp8RoundingTest(unittest.TestCase):
    """Rounding by scales that are given, as attnc.torch.serving calls it."""

    def test_one_and_of_heads(self):
        for device in DEVICES:
            for dtype in (torch.bfloat16, torch.float16, torch.float32):
                fused = torch.randn(70, 4 + 2, 32, device=device, dtype=dtype)
                fused[3, 2, 1] = 6e4
                for is_slice in (False, True):
                    for numbers in ((1.0,), (0.25,), (0.5, 2.0, 1.0, 8.0), (0.3, 1.5, 7.0, 0.1)):
                        rounding = None
                        for factor in (1, 0.5):  # other tensors of the same kind
                            tokens = (factor * fused)[:, :4] if is_slice else factor * fused[:, :4]
                            q = tokens.view(2, 35, 4, 32).transpose(1, 2)
                            scales = (factor**2 * torch.tensor(numbers, device=device)).expand(4)
                            rounding = rounding or Rounding(q, scales)
                            found, quotients = rounding(q, scales), (q.float() / scales.view(-1, 1, 1)).clamp(-448, 448)
                            self.assertEqual(found.dtype, torch.float8_e4m3fn)
                            self.assertTrue(found.transpose(1, 2).is_contiguous())
                            if (scales.log2() == scales.log2().round()).all():
                                self.assertTrue(torch.equal(found.float(), quotients.to(found.dtype).float()))
                            self.assertTrue(((found.float() - quotients).abs() <= quotients.abs() * 0.0626 + 2**-10).all())

    @unittest.skipUnless(IS_SERVED, "needs an sm_90a")
    def test_cuda_graphs(self):
        q, scale = torch.randn(1, 4, 300, 64, device="cuda", dtype=torch.bfloat16), torch.ones((), device="cuda")
        scales = scale.view(-1).expand(4)
        rounding = Rounding(q, scales)
        rounding(q, scales)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            found = rounding(q, scales)
        for number in (2.0, 0.5):
            scale.fill_(number)
            graph.replay()
            self.assertTrue(torch.equal(found.float(), (q.float() / number).to(found.dtype).float()))


class Biased:
    """A score_mod with a table, whose twin on the CPU is its attribute."""

    def __init__(self, table):
        self.table = table

    def __call__(self, score, b, h, q, k):
        return score + self.table[h] * 0.5 * (k - q) / 64


def by_cpu(mod):
    return Biased(mod.table.on_cpu)


if __name__ == "__main__":
    unittest.main()
