#!/usr/bin/env python3
"""Compares second derivatives, forward mode and transforms of torch.func with autograd over an eager attention in fp64.

  ATTNC_LIBRARY=libattnc.so python3 derivatives_test.py [--device cuda] [-v ...]

Prints SKIPPED if torch is not installed, or finds no GPU where one is asked for.
"""

import random
import unittest
import unittest.mock

import needs

needs.modules("attention")
import torch
from attention import relative_error
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx
from torch.func import grad, hessian, jacfwd, jacrev, jvp, linearize, vjp, vmap
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

import attnc
from attnc import flash_attn, natten
from attnc.torch import AuxRequest, create_block_mask, derivatives, flash, flex_attention

DEVICE = needs.device()
LIMITS = {torch.float32: 1e-5 if DEVICE == "cpu" else 1e-4, torch.bfloat16: 3e-2}


def relative_bias(table, slopes):
    return lambda s, b, h, q, k: 5 * torch.tanh(s / 5) + table[h, k - q + 16] + torch.sin(s * slopes[h])


def by_batch(table, factor):
    return lambda s, b, h, q, k: s * factor + torch.where(s > 0, s * table[b, k], table[b, q] * s * s / 4)


def by_document(table, documents):
    return lambda s, b, h, q, k: s + s * table[documents[q], documents[k]] ** 2


def stopped(table):
    return lambda s, b, h, q, k: s * table[h].detach() + torch.exp(table[h] * s / 8).detach() * s + table[h] * k / 8


SCORE_MODS = {  # a function of captures, and their shapes; a dtype stands for ints below 3
    None: (),
    relative_bias: (("H", 32), ("H",)),
    by_batch: (("B", 16), ()),
    by_document: ((3, 3), (16, torch.int32)),
    stopped: (("H",),),
}
MASK_MODS = [
    None, lambda b, h, q, k: (k <= q + 2) & (k > q - 6), lambda b, h, q, k: (q % 3 != 1) & (k != h),
]  # fmt: skip


def keeping(seed):
    """A prob_mod of random numbers, as dropout is."""
    return lambda p, b, h, q, k: p * torch.where(attnc.random(seed, b, h, q, k) < 0.3, 0.0, 1 / 0.7)


def learned(sink):
    return lambda b, h, q: sink[h] * sink[h] - q / 8


class Problem:
    """An attention drawn at random: operands, and the function of them by attnc and by PyTorch's operations in fp64."""

    def __init__(self, seed, dtype=torch.float32):
        draw = random.Random(seed)
        self.dtype = dtype
        self.B, self.kv_heads, group = draw.choice([1, 2]), draw.choice([1, 2]), draw.choice([1, 2, 3])
        self.H, self.q_len, self.kv_len = self.kv_heads * group, draw.randint(3, 12), draw.randint(3, 12)
        self.D, self.DV = draw.choice([(8, 8), (16, 8), (8, 24)])
        self.make, shapes = draw.choice([*SCORE_MODS.items()])
        self.mask_mod = draw.choice(MASK_MODS)
        self.prob_mod = keeping(torch.tensor(seed + 7)) if draw.random() < 0.4 else None
        self.scale = draw.choice([None, 0.7])
        self.has_sink = draw.random() < 0.4  # its captured tensor is the last one
        if self.has_sink:
            shapes = (*shapes, ("H",))
        kv_batch = 1 if self.mask_mod and draw.random() < 0.3 else self.B  # without a mask PyTorch's API wants equal ones
        generator = torch.Generator().manual_seed(seed)
        normal = lambda *shape: torch.randn(shape, generator=generator)
        q, k, v = (
            normal(batch, heads, length, width).transpose(1, 2).contiguous().transpose(1, 2) if draw.random() < 0.5
            else normal(batch, heads, length, width)
            for batch, heads, length, width in (
                (self.B, self.H, self.q_len, self.D), (kv_batch, self.kv_heads, self.kv_len, self.D),
                (kv_batch, self.kv_heads, self.kv_len, self.DV),
            )
        )  # fmt: skip
        captures = []
        for shape in shapes:
            extents = [getattr(self, x) if isinstance(x, str) else x for x in shape if x is not torch.int32]
            is_int = torch.int32 in shape
            captures.append(torch.randint(3, extents, dtype=torch.int32, generator=generator) if is_int else normal(*extents))
        operands = [*(x.to(dtype) for x in (q, k, v)), *captures]
        self.ints = {place: x for place, x in enumerate(operands) if not x.is_floating_point()}
        self.operands = [x.to(DEVICE) for x in operands if x.is_floating_point()]
        self.directions = [torch.randn(x.shape, generator=generator).to(x) for x in self.operands]

    def _captures(self, operands, device):
        operands = [*operands]
        for place, x in self.ints.items():
            operands.insert(place, x.to(device))
        return operands[3:]

    def attnc(self, q, k, v, *captures):
        captures = self._captures((q, k, v, *captures), DEVICE)
        sink_mod = learned(captures.pop()) if self.has_sink else None
        mask = self.mask_mod and create_block_mask(self.mask_mod, None, None, self.q_len, self.kv_len, device=DEVICE)
        out, lse = flex_attention(
            q, k, v, self.make and self.make(*captures), mask, self.scale, enable_gqa=True, return_lse=True,
            prob_mod=self.prob_mod, sink_mod=sink_mod,
        )  # fmt: skip
        return out, torch.where(lse.isinf(), 0, lse)

    def eager(self, q, k, v, *captures):
        captures = self._captures((q, k, v, *captures), "cpu")
        sink_mod = learned(captures.pop()) if self.has_sink else None
        k, v = (x.repeat_interleave(self.H // self.kv_heads, 1) for x in (k, v))
        s = q @ k.mT * (self.D**-0.5 if self.scale is None else self.scale)
        at = torch.meshgrid(*map(torch.arange, (self.B, self.H, self.q_len, self.kv_len)), indexing="ij")
        s = self.make(*captures)(s, *at) if self.make else s
        live = self.mask_mod(*at) if self.mask_mod else torch.ones_like(s, dtype=torch.bool)
        terms = torch.where(live, s, -1e9)
        if sink_mod:
            terms = torch.cat([terms, sink_mod(*(x[..., :1] for x in at[:3])).to(s)], -1)
        lse = terms.logsumexp(-1, keepdim=True)
        weights = torch.where(live, (s - lse).clamp(max=1), -1e9).exp()
        weights = self.prob_mod(weights, *at) if self.prob_mod else weights
        return weights @ v, lse[..., 0] if sink_mod else torch.where(live.any(-1), lse[..., 0], 0)

    def both(self, derive):
        """Returns what `derive`, a function of f and a function that converts tensors to f's dtype, returns for each."""
        wide = lambda x: x.detach().cpu().double()
        return derive(self.attnc, lambda x: x), derive(self.eager, wide)


def loss_of(f, weights):
    return lambda *args: sum((x.to(w.dtype) * w * (1 + x.to(w.dtype) / 2)).sum() for x, w in zip(f(*args), weights))


class DerivativesTest(unittest.TestCase):
    def near(self, actual, expected, limit=1e-5, what=""):
        self.assertEqual(len(actual), len(expected))
        for place, (x, y) in enumerate(zip(actual, expected)):
            self.assertLess(relative_error(x.detach().cpu(), y.detach().cpu()), limit, f"{what} {place}")

    def problems(self, count=10):
        for dtype, seeds in ((torch.float32, range(count)), (torch.bfloat16, range(100, 100 + count // 3))):
            for seed in seeds:
                problem = Problem(seed, dtype)
                shapes = (problem.B, problem.H, problem.q_len, problem.DV), (problem.B, problem.H, problem.q_len)
                generator = torch.Generator().manual_seed(seed)
                # With equal values in bf16 and f64.
                weights = [torch.randn(shape, generator=generator).to(dtype).float().to(DEVICE) for shape in shapes]
                with self.subTest(seed=seed, dtype=dtype, mod=problem.make and problem.make.__name__):
                    yield problem, weights, LIMITS[dtype]

    def test_double_backward(self):
        """Gradients of (w, gradients), by operands and by the gradients of out and lse."""
        for problem, weights, limit in self.problems():
            places = random.Random(limit).sample(range(len(problem.operands)), 1 + len(problem.operands) // 2)

            def derive(f, to):
                operands = [to(x).detach() for x in problem.operands]
                wanting = [operands[at].requires_grad_() for at in places]
                out, lse = f(*operands)
                given = [to(w).to(x.dtype).requires_grad_() for w, x in zip(weights, (out, lse))]
                found = torch.autograd.grad((out, lse), wanting, given, create_graph=True, materialize_grads=True)
                w = sum((x * to(problem.directions[at])).sum() for x, at in zip(found, places))
                return [*found, *torch.autograd.grad(w, [*given, *wanting], materialize_grads=True)]

            self.near(*problem.both(derive), limit)

    def test_forward_mode(self):
        for problem, _, limit in self.problems():
            for places in (range(len(problem.operands)), [0], [len(problem.operands) - 1]):

                def derive(f, to):
                    primals, directions = ([*map(to, x)] for x in (problem.operands, problem.directions))

                    def of(*moving):
                        operands = [*primals]
                        for at, x in zip(places, moving):
                            operands[at] = x
                        return f(*operands)

                    moving, along = ([x[at] for at in places] for x in (primals, directions))
                    found = jvp(of, tuple(moving), tuple(along))
                    with forward_ad.dual_level():
                        outputs = of(*map(forward_ad.make_dual, moving, along))
                        duals = [forward_ad.unpack_dual(x) for x in outputs]
                    for x, dual in zip(found[1], duals):
                        tangent = torch.zeros_like(x) if dual.tangent is None else dual.tangent
                        torch.testing.assert_close(x, tangent, rtol=0, atol=0)
                    return [*found[0], *found[1]]

                self.near(*problem.both(derive), limit)

    def test_orders_of_two_modes(self):
        for problem, weights, limit in self.problems(8):
            places = tuple(range(len(problem.operands)))

            def derive(f, to):
                primals, directions = (tuple(map(to, x)) for x in (problem.operands, problem.directions))
                loss = loss_of(f, [*map(to, weights)])
                forward_over_reverse = jvp(grad(loss, places), primals, directions)[1]
                tangents = lambda *args: jvp(f, args, directions)[1]
                reverse_over_forward = grad(loss_of(tangents, [*map(to, weights)]), places)(*primals)
                reverse_over_reverse = grad(
                    lambda *args: sum((x * y).sum() for x, y in zip(grad(loss, places)(*args), directions)), places
                )(*primals)
                # One place after the other: what the inner derivative does not track, the outer one does.
                first, last = places[0], places[-1]
                mixed = grad(lambda *args: (grad(loss, first)(*args) * directions[first]).sum(), last)(*primals)
                outputs, pull = vjp(f, *primals)
                pulled = pull(tuple(map(torch.ones_like, outputs)))
                return [*forward_over_reverse, *reverse_over_forward, *reverse_over_reverse, mixed, *pulled]

            self.near(*problem.both(derive), limit)

    def test_lists_of_blocks(self):
        """Masks with lists of their own reach the kernels."""
        mask_mod = MASK_MODS[1]
        q, k, v = (torch.randn(1, 2, 40, 8, device=DEVICE, requires_grad=True) for _ in range(3))
        own = torch.nn.attention.flex_attention.create_block_mask(mask_mod, None, None, 40, 40, device=DEVICE, BLOCK_SIZE=16)
        found = []
        for mask in (own, create_block_mask(mask_mod, None, None, 40, 40, device=DEVICE)):
            dq, dk = torch.autograd.grad(flex_attention(q, k, v, block_mask=mask).sum(), (q, k), create_graph=True)
            found.append(torch.autograd.grad((dq * dk).sum(), (q, k, v)))
        self.near(*found, 1e-6)

    def test_options_are_those_of_first_derivatives(self):
        """Kernels of a family, and tiles, that tangents do not have."""
        q, k, v = self.small(1, 2, 64, 64)
        plain, asked = (
            self.second(lambda x: flex_attention(x, k, v, kernel_options=options), q)
            for options in (None, {"family": "sm80", "backward_tile": "64x64x4"})
        )
        self.near([plain], [asked], LIMITS[torch.float32])

    def small(self, *shape):
        generator = torch.Generator().manual_seed(5)
        return [torch.randn(shape or (1, 2, 5, 8), generator=generator).to(DEVICE) for _ in range(3)]

    def test_jacobians_and_vmap(self):
        q, k, v = self.small()
        table = torch.randn(2, 5, 5, device=DEVICE)
        mod = lambda s, b, h, q, k: s * table[h, q, k] + 2 * b
        f = lambda x: flex_attention(x, k, v, mod)
        eager = lambda x: torch.softmax(x @ k.mT / 8**0.5 * table, -1) @ v
        loss, right = (lambda x: f(x).square().sum()), (lambda x: eager(x).square().sum())
        expected = hessian(right)(q)
        for name, of in (
            ("forward over reverse", jacfwd(jacrev(loss))), ("reverse over reverse", jacrev(jacrev(loss))),
            ("reverse over forward", jacrev(jacfwd(loss))),
            ("functional", lambda q: torch.autograd.functional.hessian(loss, q)),
        ):  # fmt: skip
            self.near([of(q)], [expected], 1e-4, name)
        self.near([jacfwd(f)(q), jacrev(f)(q)], [jacrev(eager)(q)] * 2)
        _, product = torch.autograd.functional.vhp(loss, q, v)
        self.near([product], [(expected.flatten(4) @ v.flatten()).view(q.shape)], 1e-4)
        # Mods see the b of each call, wherever the mapped axis is; captures are mapped as well.
        many, tables = torch.stack((q, v, k), -1), torch.stack((table, -table, table / 2), 1)
        mapped = vmap(lambda x, t: flex_attention(x, k, v, lambda s, b, h, q, k: s * t[h, q, k]), (4, 1))(many, tables)
        for place, x in enumerate(mapped):
            one = lambda s, b, h, q, k: s * tables[h, place, q, k]
            self.near([x], [flex_attention(many[..., place], k, v, one)], 1e-6)
        grads = vmap(grad(loss))(torch.stack((q, k)))
        self.near([*grads], [grad(right)(q), grad(right)(k)])
        drop = lambda x: flex_attention(x, k, torch.ones_like(v), dropout_p=0.5)
        one, other = vmap(drop, randomness="different")(torch.stack((q, q)))
        self.assertFalse(torch.equal(one, other))
        one, other = vmap(drop, randomness="same")(torch.stack((q, q)))
        self.assertTrue(torch.equal(one, other))

    def test_dropout(self):
        """Both passes of a derivative drop the same weights."""
        q, k, v = self.small(1, 2, 24, 8)
        for f in (lambda x: flex_attention(x, k, v, dropout_p=0.4), lambda x: flash_attn.flash_attn_func(x, k, v, 0.4)):
            drawn = []
            for derive in (
                lambda: jvp(grad(lambda x: f(x).square().sum()), (q,), (v,))[1],
                lambda: grad(lambda x: jvp(lambda x: f(x).square().sum(), (x,), (v,))[1])(q),
            ):  # fmt: skip
                torch.manual_seed(3)
                drawn.append(derive())
            self.near(*([x] for x in drawn))
            self.assertTrue(drawn[0].any())

    def second(self, f, x, **options):
        x = x.detach().requires_grad_()
        (found,) = torch.autograd.grad(f(x, **options).square().sum(), x, create_graph=True)
        return torch.autograd.grad(found.square().sum(), x)[0]

    def test_doors(self):
        q, k, v = self.small()
        eager = lambda x: torch.softmax(x @ k.mT / 8**0.5, -1) @ v
        f, expected = (lambda x: flex_attention(x, k, v)), self.second(eager, q)
        along = jvp(eager, (q,), (k,))[1]

        class Mode(TorchDispatchMode):
            def __torch_dispatch__(self, function, types, args=(), kwargs=None):
                return function(*args, **(kwargs or {}))

        heads_last = lambda of: lambda x: of(*(y.transpose(1, 2) for y in (x, k, v))).transpose(1, 2)
        natten_of = lambda q, k, v: natten.na1d(q, k, v, kernel_size=5)
        found = [self.second(g, q) for g in (f, heads_last(flash_attn.flash_attn_func), heads_last(natten_of))]
        found.append(self.second(lambda x: checkpoint(f, x, use_reentrant=False), q))
        with Mode():
            found.append(self.second(f, q))
        torch._dynamo.reset()
        found.append(torch.compile(lambda x: grad(lambda x: grad(lambda x: f(x).square().sum())(x).square().sum())(x),
                                   backend="aot_eager")(q))  # fmt: skip
        self.near(found, [expected] * len(found), 2e-5)
        found = [jvp(g, (q,), (k,))[1] for g in (f, heads_last(flash_attn.flash_attn_func), heads_last(natten_of))]
        with Mode():
            found.append(jvp(f, (q,), (k,))[1])
        self.near(found, [along] * len(found))
        aux = lambda x: flex_attention(x, k, v, return_aux=AuxRequest(max_scores=True))[1].max_scores
        maxima, moved = jvp(aux, (q,), (k,))
        torch.testing.assert_close(maxima, aux(q))
        self.assertFalse(moved.any())

    def test_computes_no_gradient_that_nobody_wants(self):
        q, k, v = self.small()
        pull = vjp(lambda q: flex_attention(q, k, v), q)[1]
        with unittest.mock.patch.object(derivatives, "_tangents_of", wraps=derivatives._tangents_of) as called:
            along = grad(lambda dout: (pull(dout)[0] * q).sum())(v)
        self.assertEqual([call.args[2] for call in called.call_args_list], [None])
        self.near([along], [jvp(lambda q: torch.softmax(q @ k.mT / 8**0.5, -1) @ v, (q,), (q,))[1]])
        with unittest.mock.patch.object(derivatives.SecondTangents, "apply", wraps=derivatives.SecondTangents.apply) as second:
            jvp(lambda dout: pull(dout)[0], (v,), (q,))
            grad(lambda along: jvp(lambda q: flex_attention(q, k, v), (q,), (along,))[1].sum())(v)
        self.assertFalse(second.called)

    def test_refusals(self):
        q, k, v = self.small(1, 2, 6, 16)
        f = lambda x: flex_attention(x, k, v)
        sum_of = lambda f: lambda x: f(x).square().sum()
        twice = grad(sum_of(grad(sum_of(f))))
        for derive in (
            lambda: grad(sum_of(twice))(q), lambda: jvp(twice, (q,), (k,)),
            lambda: self.second(lambda x: grad(sum_of(f))(x), q),
        ):  # fmt: skip
            with self.assertRaisesRegex(NotImplementedError, "no third derivatives of attention: use torch.nn.functional"):
                derive()
        with self.assertRaisesRegex(NotImplementedError, "no tangents of tangents.*take jvp of grad"):
            jvp(lambda x: jvp(f, (x,), (k,))[1], (q,), (k,))
        narrow = [x.bfloat16() for x in (q, k, v)]
        rounded = lambda x: flex_attention(x, *narrow[1:], kernel_options={"fp8": "head"})
        if DEVICE == "cpu" or torch.cuda.get_device_capability() >= (8, 9):
            for derive in (lambda: self.second(rounded, narrow[0]), lambda: jvp(rounded, (narrow[0],), (narrow[1],))):
                with self.assertRaisesRegex(NotImplementedError, "fp8='head' has no second derivatives.*leave fp8 out"):
                    derive()
        cumulative = torch.tensor([0, 4, 6], dtype=torch.int32, device=DEVICE)
        ragged = lambda x: flash_attn.flash_attn_varlen_func(x, x, x, cumulative, cumulative, 6, 6)
        rows = q[0].transpose(0, 1).contiguous()
        with self.assertRaisesRegex(NotImplementedError, "a ragged batch has no second derivatives.*mask_mod, document"):
            self.second(ragged, rows)
        cached = lambda x: flash_attn.flash_attn_with_kvcache(x, rows[None], rows[None], cache_seqlens=4)
        for g, x in ((ragged, rows), (cached, rows[None])):
            with self.assertRaisesRegex(NotImplementedError, "no transforms of torch.func over ragged batches and caches"):
                jvp(g, (x,), (x,))
        mod = attnc.Mod.parse("def mask_mod(b, h, q_idx, kv_idx):\n    return q_idx >= kv_idx\n")
        with self.assertRaisesRegex(attnc.ArgumentError, "q has a tangent, .*use attnc.torch.flex_attention"):
            jvp(lambda x: attnc.attention(mod, x, k, v), (q,), (k,))
        gate = torch.rand(6, device=DEVICE)
        gated = lambda gate: flex_attention(q, k, v, prob_mod=lambda p, b, h, q, k: p * gate[k])
        with self.assertRaisesRegex(attnc.RunError, "gate has no gradient: prob_mod reads it"):
            grad(lambda gate: gated(gate).sum())(gate)
        with self.assertRaisesRegex(NotImplementedError, r"gate has no .*tangent: prob_mod reads it. Give gate.detach\(\)"):
            jvp(gated, (gate,), (gate,))
        self.near([jvp(lambda q: flex_attention(q, k, v, prob_mod=lambda p, b, h, q, k: p * gate[k]), (q,), (k,))[1]],
                  [jvp(lambda q: (q @ k.mT / 4).softmax(-1) * gate @ v, (q,), (k,))[1]])  # fmt: skip

    def test_in_graphs(self):
        q, k, v = self.small()
        slopes = torch.tensor([0.5, 0.25], device=DEVICE)
        f = lambda x, s: flex_attention(x, k, v, lambda score, b, h, q, k: score + s[h] * (k - q) ** 2, sink_mod=lambda b, h, q: s[h])
        loss = lambda x, s: f(x, s).square().sum()
        force = lambda x, s: grad(loss, argnums=(0, 1))(x, s)
        cases = {
            "grad": force, "vjp": lambda x, s: vjp(f, x, s)[1](x), "jvp": lambda x, s: jvp(lambda x: f(x, s), (x,), (k,))[1],
            "hessian": lambda x, s: jvp(lambda x: force(x, s), (x,), (k,))[1],
            "penalty": lambda x, s: grad(lambda x, s: force(x, s)[0].square().sum(), argnums=(0, 1))(x, s),
            "meanflow": lambda x, s: grad(lambda x: jvp(lambda x: f(x, s), (x,), (k,))[1].square().sum())(x),
            "samples": lambda x, s: vmap(force)(torch.stack([x, 2 * x]), torch.stack([s, s + 1])),
        }  # fmt: skip
        other = q.cos(), slopes + 1
        for name, derive in cases.items():
            torch.compiler.reset()
            compiled = torch.compile(derive, backend="aot_eager", fullgraph=True)
            for graph in (compiled, make_fx(derive)(q, slopes)):
                graph(q, slopes)
                with self.subTest(name, graph=type(graph)):
                    torch.testing.assert_close(graph(*other), derive(*other), rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(linearize(lambda x: f(x, slopes), q)[1](k), cases["jvp"](q, slopes))
        for name in ("grad", "jvp"):  # and the graph's own gradients
            torch.compiler.reset()
            leaves = [x.clone().requires_grad_() for x in other]
            total = lambda results: sum(x.square().sum() for x in (results if isinstance(results, tuple) else (results,)))
            is_, be = (
                torch.autograd.grad(total(derive(*leaves)), leaves)
                for derive in (torch.compile(cases[name], backend="aot_eager", fullgraph=True), cases[name])
            )
            with self.subTest(name):
                torch.testing.assert_close(is_, be, rtol=1e-4, atol=1e-4)

    def test_graphs_without_derivatives(self):
        q, k, v = self.small()
        f = lambda x: flex_attention(x, k, v)
        torch.compiler.reset()
        with self.assertRaisesRegex(NotImplementedError, "inside of the function that is compiled"), forward_ad.dual_level():
            torch.compile(f, backend="aot_eager")(forward_ad.make_dual(q, k))  # whose tangent a graph would drop

        class Model(torch.nn.Module):
            def forward(model, x):
                return jvp(f, (x,), (k,))[1]

        with self.assertRaisesRegex(NotImplementedError, "torch.export records no forward mode"):
            torch.export.export(Model(), (q,), strict=False)
        torch.compiler.reset()
        x, of_natten = self.small(1, 8, 2, 4)[0], lambda x: natten.na1d(x, x, x, kernel_size=3)
        with self.assertRaisesRegex(Exception, "operators have no forward mode and no transforms of torch.func"):
            torch.compile(lambda x: jvp(of_natten, (x,), (x,))[1], backend="aot_eager", fullgraph=True)(x)

    @unittest.skipIf(DEVICE == "cuda", "the functions are registered for the CPU")
    def test_flash_attention_refuses(self):
        """PyTorch's operators have no derivative of their gradient, also if attnc computes them."""
        active = flash._Active("CPU")
        self.addCleanup(active.remove)
        q = self.small()[0].bfloat16()
        f = lambda x: torch.ops.aten._scaled_dot_product_flash_attention(x, x, x)[0]
        with self.assertRaisesRegex(RuntimeError, "flash_attention_backward is not implemented"):
            self.second(f, q)
        with self.assertRaisesRegex(NotImplementedError, "forward AD"):
            jvp(f, (q,), (q,))


if __name__ == "__main__":
    if DEVICE == "cuda":
        print(torch.cuda.get_device_name())
    unittest.main()
