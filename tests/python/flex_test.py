#!/usr/bin/env python3
"""Compares attnc.torch with attention by definition: results, gradients, block masks, and errors for wrong operands.

  ATTNC_LIBRARY=libattnc.so python3 flex_test.py [-v ...]

Runs on the CPU, and on a GPU if there is one. Prints SKIPPED if torch is not installed.
"""

import contextlib
import gc
import inspect
import io
import itertools
import math
import os
import random
import re
import subprocess
import sys
import tempfile
import types
import unittest
import unittest.mock
import warnings

import needs

needs.modules("numpy", "attention")
import numpy
import torch
from attention import by_definition, relative_error
import attnc
import attnc.torch
from attnc._spec import PrepareOptions
from attnc.launch import OPTIONS, Launch, members_of
from attnc.torch import AuxRequest, BlockMask, and_masks, choice, create_block_mask, flex_attention, or_masks, translate
from attnc.torch import flex as flex_of_attnc, kernels
from attnc.torch.block_mask import mask_mod_of
from functorch.compile import make_boxed_compiler
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.testing import CompileCounterWithBackend
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.attention import flex_attention as flex
from torch.utils._python_dispatch import TorchDispatchMode

DEVICES = ["cpu"] + ["cuda"] * torch.cuda.is_available()
# PyTorch up to 2.9 has other words in errors of graphs, traces no numbers among the indices of a gather, and does not
# export captured tensors strictly.
HAS_OLD_GRAPHS = tuple(map(int, torch.__version__.split(".")[:2])) < (2, 10)
B, H, HKV, Q_LEN, KV_LEN, D = 2, 4, 2, 130, 140, 16


def operands(device, dtype=torch.float32, requires_grad=True, q_len=Q_LEN, kv_len=KV_LEN, kv_heads=HKV, seed=1):
    generator = torch.Generator().manual_seed(seed)
    shapes = (B, H, q_len, D), (B, kv_heads, kv_len, D), (B, kv_heads, kv_len, D)
    return [torch.randn(s, generator=generator).to(device, dtype).requires_grad_(requires_grad) for s in shapes]


def causal(b, h, q, k):
    return q >= k


class Biased:
    """A mod with captured tensors that want gradients."""

    def __init__(self, device):
        generator = torch.Generator().manual_seed(2)
        self.table = torch.randn(H, KV_LEN, generator=generator).to(device).requires_grad_()
        self.cap = torch.tensor(4.0, device=device, requires_grad=True)
        self.documents = torch.arange(KV_LEN, device=device) // 40

    def score(self, score, b, h, q, k):
        return torch.tanh((score + self.table[h, k]) / self.cap) * self.cap

    def mask(self, b, h, q, k):
        return self.documents[q] == self.documents[k]


class FlexTest(unittest.TestCase):
    def near(self, actual, expected, limit=2e-5):
        self.assertLess(relative_error(actual.cpu(), expected.cpu()), limit)

    def test_latent_attention(self):
        """v may be a view of k's first columns. Decode kernels of wide heads then do not load it, so calls with another v
        are of another kind."""
        generator = torch.Generator().manual_seed(3)
        for device in DEVICES:
            dtype = torch.float32 if device == "cpu" else torch.bfloat16
            q, k, other = (
                torch.randn(2, heads, rows, 576, generator=generator).to(device, dtype)
                for heads, rows in ((16, 2), (1, 700), (1, 700))
            )
            if device == "cuda" and torch.cuda.get_device_capability() != (9, 0):
                continue
            kinds = set()
            for v in (k[..., :512], other[..., :512]):
                limit = 2e-5 if device == "cpu" else 1e-2
                out = flex_attention(q, k, v, enable_gqa=True)
                weights = torch.softmax(q.float() @ k.float().transpose(2, 3) * 576**-0.5, 3)
                self.near(out.float(), weights @ v.float(), limit)
                kinds.add(kernels.kind_of(Launch({}, 1.0), q, k, v, {}))
            self.assertEqual(len(kinds), 2)
            if device == "cuda":
                with self.assertRaisesRegex(attnc.RunError, "no backward pass for head dims above 256"):
                    flex_attention(q.requires_grad_(), k, k[..., :512], enable_gqa=True)

    def each_device(self):
        for device in DEVICES:
            with self.subTest(device):
                yield device

    def test_results_and_gradients(self):
        for device in self.each_device():
            mod = Biased(device)
            q, k, v = operands(device)
            block_mask = create_block_mask(mod.mask, None, None, Q_LEN, KV_LEN, device=device)
            out, lse = flex_attention(q, k, v, mod.score, block_mask, enable_gqa=True, return_lse=True)
            generator = torch.Generator().manual_seed(3)
            dout, dlse = (torch.randn(x.shape, generator=generator).to(x) for x in (out, lse))
            leaves = q, k, v, mod.table, mod.cap
            grads = torch.autograd.grad([out, lse], leaves, [dout, dlse])
            on_cpu = Biased("cpu")
            moved = [x.detach().cpu().requires_grad_() for x in (q, k, v)]
            expected, expected_lse = by_definition(on_cpu.score, on_cpu.mask, *moved)
            wanted = torch.autograd.grad(
                [expected, expected_lse],
                (*moved, on_cpu.table, on_cpu.cap),
                [dout.double().cpu(), dlse.double().cpu()],
            )
            for actual, right in zip((out, lse, *grads), (expected, expected_lse, *wanted)):
                self.near(actual, right)

    def test_tiles(self):
        for device in self.each_device():
            q, k, v = operands(device, torch.bfloat16)
            results = {}
            for name in ("BLOCK_M", "tile", "backward_tile"):
                options = {name: 64 if name == "BLOCK_M" else "1x2x3"}
                if name != "BLOCK_M":
                    with self.assertRaises(attnc.RunError) as caught:  # which names those that there are
                        flex_attention(q, k, v, enable_gqa=True, kernel_options=options)
                    options[name] = caught.exception.remedy.removeprefix("it has ").split(", ")[-1]
                out = flex_attention(q, k, v, enable_gqa=True, kernel_options=options)
                results[name] = out, *torch.autograd.grad(out, (q, k, v), torch.ones_like(out))
            for name, found in results.items():
                for actual, right in zip(found, results["BLOCK_M"]):
                    self.near(actual, right, 2e-2)

    def test_gradients_of_captures_alone_and_of_operands_alone(self):
        for device in self.each_device():
            mod = Biased(device)
            q, k, v = operands(device, requires_grad=False)
            flex_attention(q, k, v, mod.score, enable_gqa=True).sum().backward()
            self.assertTrue(mod.table.grad.any() and mod.cap.grad.any())
            q.requires_grad_()
            mask = create_block_mask(causal, 1, 1, Q_LEN, KV_LEN, device=device)
            flex_attention(q, k, v, block_mask=mask, enable_gqa=True).square().sum().backward()
            self.assertTrue(q.grad.any())

    def test_layouts_scales_and_dtypes(self):
        for device in self.each_device():
            q, k, v = operands(device, torch.bfloat16, requires_grad=False)
            turned = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, v)]
            out = flex_attention(*turned, scale=0.25, enable_gqa=True)
            self.assertEqual(out.stride(), turned[0].stride())
            self.assertEqual(out.dtype, torch.bfloat16)
            self.near(out, by_definition(None, None, q.cpu(), k.cpu(), v.cpu(), scale=0.25)[0], 5e-3)
            wide = torch.cat([v, v], -1)
            self.assertEqual(flex_attention(q, k, wide, enable_gqa=True).shape[-1], 2 * D)

    def test_auxiliary_results(self):
        for device in self.each_device():
            q, k, v = operands(device, requires_grad=False)
            request = AuxRequest(lse=True, max_scores=True)
            out, aux = flex_attention(q, k, v, enable_gqa=True, return_aux=request)
            score = (q @ k.repeat_interleave(2, 1).mT) * D**-0.5
            self.near(aux.max_scores, score.amax(-1), 1e-5)
            self.near(aux.lse, score.logsumexp(-1), 1e-5)
            _, aux = flex_attention(q, k, v, enable_gqa=True, return_aux=AuxRequest())
            self.assertIsNone(aux.lse)

    def test_block_masks_of_pytorch(self):
        for device in self.each_device():
            made = flex.create_block_mask(causal, None, None, KV_LEN, KV_LEN, device=device)

            def of_lists(*lists, mask_mod=causal):
                lists = [torch.tensor(x, dtype=torch.int32, device=device) for x in lists]
                return flex.BlockMask.from_kv_blocks(*lists, mask_mod=mask_mod, seq_lengths=(KV_LEN, KV_LEN))

            # Lists of one's own leave blocks out, and full blocks skip mask_mod.
            count, partial, full = [[[1, 1]]], [[[[0, 1], [1, 0]]]], [[[[1, 0], [0, 1]]]]
            own, alone = of_lists(count, partial, count, full), of_lists(count, partial)
            narrow = [[[[0], [1]]]]  # as many columns as the longest list has blocks
            by_head = flex.create_block_mask(
                lambda b, h, q, k: (q >= k) | (h == 1), B, H, KV_LEN, KV_LEN, device=device, BLOCK_SIZE=64
            )
            small = flex.create_block_mask(causal, None, None, KV_LEN, KV_LEN, device=device, BLOCK_SIZE=32)
            self.assertIsNotNone(mask_mod_of(own, KV_LEN, KV_LEN)[1])
            self.assertIsNone(mask_mod_of(small, KV_LEN, KV_LEN)[1])  # kernels have no such blocks
            diagonal = lambda b, h, q, k: (q // 128 == k // 128) & (q >= k)  # noqa: E731
            outside = lambda b, h, q, k: (q // 128 != k // 128) | (q >= k)  # noqa: E731
            for name, mask, meaning in (
                ("made", made, causal),
                ("own", own, outside),
                ("alone", alone, diagonal),
                ("by head", by_head, lambda b, h, q, k: (q >= k) | (h == 1)),
                ("small", small, causal),
                ("narrow", of_lists(count, narrow), diagonal),
                ("narrow, all", of_lists(count, narrow, count, [[[[1], [0]]]]), outside),
                ("narrow, full ones", of_lists(count, partial, count, [[[[1], [0]]]]), outside),
                ("wide", of_lists(count, [[[[0, 1, 2, 7], [1, 0, 0, 0]]]]), diagonal),
                ("without batch and heads", of_lists(count[0][0], partial[0][0]), diagonal),
                ("of no block", of_lists([[[1, 0]]], partial), lambda b, h, q, k: (q < 128) & (k < 128) & (q >= k)),
            ):
                with self.subTest(name):
                    self.same_under(mask, None, meaning, device)

    def same_under(self, mask, score_mod, meaning, device, q_len=KV_LEN, kv_len=KV_LEN):
        """Out and gradients under a block mask are those of its meaning."""
        q, k, v = operands(device, q_len=q_len, kv_len=kv_len)
        out = flex_attention(q, k, v, score_mod, mask, enable_gqa=True)
        moved = [x.detach().cpu().requires_grad_() for x in (q, k, v)]
        expected, _ = by_definition(score_mod, meaning, *moved)
        self.near(out, expected)
        grads = torch.autograd.grad(out.square().sum(), (q, k, v))
        for x, y in zip(grads, torch.autograd.grad(expected.square().sum(), moved)):
            self.near(x, y)

    def test_scores_of_minus_infinity_under_lists(self):
        """What a score_mod hides stays hidden in blocks that are full of the block mask's mask_mod."""
        length, infinity = 400, float("inf")
        document = lambda b, h, q, k: q // 300 == k // 300  # noqa: E731
        score_mods = {
            "where": lambda s, b, h, q, k: torch.where(q >= k, s, -infinity),
            "masked_fill": lambda s, b, h, q, k: (s * 2).masked_fill(q < k, -infinity),
            "of a helper": lambda s, b, h, q, k: torch.where(causal(b, h, q, k) & (k > 2), s, -infinity),
            "scored": lambda s, b, h, q, k: torch.where(s < 1, s, -infinity),
        }
        for device in self.each_device():
            made = flex.create_block_mask(document, None, None, length, length, device=device)
            ours = create_block_mask(document, None, None, length, length, device=device)
            larger = flex.create_block_mask(document, None, None, 2 * length, 2 * length, device=device)
            adjusted = larger._adjust(length, length)
            adjusted.seq_lengths = (length, length)  # PyTorch 2.11 has whole blocks there
            has_all_blocks = adjusted.kv_num_blocks.shape[-1] == 4  # PyTorch 2.6 drops the last one
            of_heads = flex.create_block_mask(document, 1, 2 * H, length, length, device=device)
            sliced = of_heads[:, :H]
            sliced.mask_mod = document
            count = torch.tensor([[[1, 2, 2, 3]]], dtype=torch.int32, device=device)
            full = torch.tensor(
                [[[[0, 0, 0, 0], [0, 1, 0, 0], [2, 1, 0, 0], [2, 3, 1, 0]]]], dtype=torch.int32, device=device
            )  # fmt: skip
            own = flex.BlockMask.from_kv_blocks(
                torch.zeros_like(count), torch.zeros_like(full), count, full, seq_lengths=(length, length)
            )
            listed = torch.zeros(4, 4, dtype=torch.bool)
            for row, (blocks, size) in enumerate(zip(full[0, 0].tolist(), count[0, 0].tolist())):
                listed[row, blocks[:size]] = True
            of_lists = lambda b, h, q, k: listed[q // 128, k // 128]  # noqa: E731
            for name, mask, meaning in (
                ("no mask", flex.create_block_mask(flex.noop_mask, None, None, length, length, device=device), None),
                ("documents", made, document),
                ("moved", made.to(device), document),
                ("of attnc, moved", ours.to(device), document),
                *[("adjusted", adjusted, document)] * has_all_blocks,
                ("sliced", sliced, document),
                ("of other blocks", flex.create_block_mask(document, None, None, length, length, device, 64), document),
                ("own lists", own, of_lists),
                ("of attnc", ours, document),
            ):
                kinds = score_mods if name in ("documents", "own lists") else ["where"]
                for kind in kinds:
                    with self.subTest(f"{name}, {kind}"):
                        self.same_under(mask, score_mods[kind], meaning, device, length, length)

    def test_block_masks_that_do_not_fit(self):
        lists = [torch.ones(2, 1, 2, dtype=torch.int32), torch.zeros(2, 1, 2, 2, dtype=torch.int32)]
        q, k, v = operands("cpu", requires_grad=False, q_len=KV_LEN)

        def attend(count, indices, q_len=KV_LEN, **options):
            mask = flex.BlockMask.from_kv_blocks(count, indices, seq_lengths=(q_len, KV_LEN), **options)
            flex_attention(q, k, v, block_mask=mask, enable_gqa=True)

        attend(*lists)
        for fragment, call in {
            "batch 3": lambda: attend(lists[0][[0, 1, 1]], lists[1][[0, 1, 1]]),
            "heads 2": lambda: attend(lists[0].expand(2, 2, 2), lists[1].expand(2, 2, 2, 2)),
            "1 rows of blocks": lambda: attend(lists[0][:, :, :1], lists[1][:, :, :1]),
        }.items():
            with self.subTest(fragment), self.assertRaisesRegex(ValueError, fragment):
                call()

    def test_the_advice_for_block_masks_of_other_lengths(self):
        """Where it is to adjust the mask, the adjusted mask fits."""
        for length, wanted, is_adjusted in (
            (384, 256, True),
            (300, 40, flex_of_attnc._ADJUSTS_TO_ANY),
            (64, 128, False),
        ):
            with self.subTest(f"{length} to {wanted}"):
                q = torch.randn(1, 2, wanted, D)
                mask = create_block_mask(causal, None, None, length, length, device="cpu")
                with self.assertRaises(attnc.torch.OperandError) as caught:
                    flex_attention(q, q, q, block_mask=mask)
                told = str(caught.exception)
                self.assertIn("create one of these lengths", told)
                self.assertEqual(f"_adjust({wanted}, {wanted})" in told, is_adjusted)
                if is_adjusted:
                    out = flex_attention(q, q, q, block_mask=mask._adjust(wanted, wanted))
                    self.near(out, by_definition(None, causal, q, q, q)[0])

    def test_block_masks_are_what_pytorch_makes(self):
        ours = create_block_mask(and_masks(causal, lambda b, h, q, k: q - k < 200), 1, 2, 512, 500, device="cpu")
        theirs = flex.create_block_mask(ours.mask_mod, 1, 2, 512, 500, device="cpu")
        self.assertIsInstance(ours, flex.BlockMask)
        self.assertEqual(ours.shape, theirs.shape)
        self.assertEqual(str(ours), str(theirs))
        self.assertTrue(torch.equal(ours.kv_indices, theirs.kv_indices))
        self.assertEqual(ours.sparsity(), theirs.sparsity())
        self.assertEqual(ours._adjust(256, 256).kv_num_blocks.shape, (1, 2, 2))
        self.assertIsInstance(BlockMask.from_kv_blocks(theirs.kv_num_blocks, theirs.kv_indices), BlockMask)
        self.assertTrue(torch.equal(ours.to("cpu").kv_indices, theirs.kv_indices))
        for field in flex.BlockMask.__annotations__:
            self.assertTrue(hasattr(ours, field), field)
        self.assertEqual(len(ours.as_tuple()), len(theirs.as_tuple()))
        self.assertEqual(ours[0, 1].shape, theirs[0, 1].shape)
        alike = flex.flex_attention(*[torch.ones(1, 2, n, 16) for n in (512, 500, 500)], block_mask=ours)
        self.assertEqual(alike.shape, (1, 2, 512, 16))
        with self.assertRaisesRegex(TypeError, "no option unheard_of"):
            create_block_mask(causal, None, None, 8, 8, device="cpu", unheard_of=1)
        with self.assertRaisesRegex(TypeError, "five parameters"):
            create_block_mask(lambda s, b, h, q, k: s, None, None, 8, 8, device="cpu")
        sizes = causal, None, None, 512, 512, "cpu", 128, False
        self.assertEqual(create_block_mask(*sizes, True, False, True).shape, (1, 1, 512, 512))
        if "separate_full_blocks" in inspect.signature(flex.create_block_mask).parameters:
            self.assertIsNone(create_block_mask(*sizes, False).full_kv_num_blocks)
            ordered = create_block_mask(*sizes, True, True, False)
            self.assertTrue(
                torch.equal(ordered.dq_write_order, flex.create_block_mask(*sizes, True, True, False).dq_write_order)
            )
        else:
            with self.assertRaisesRegex(TypeError, "no option separate_full_blocks"):
                create_block_mask(*sizes, False)

    def test_the_interface_is_that_of_pytorch(self):
        """Parameters have the names, the order and the defaults of the installed PyTorch; newer ones may follow."""
        for name in flex.__all__:
            self.assertTrue(hasattr(attnc.torch, name) and name in attnc.torch.__all__, name)
        from attnc.torch import (
    choice,
            _DEFAULT_SPARSE_BLOCK_SIZE, _convert_block_mask_to_mask, _convert_mask_to_block_mask,
            _create_empty_block_mask, _create_sparse_block_from_block_mask, _get_mod_type, _identity, _mask_mod_signature,
            _ModificationType, _round_up_to_multiple, _score_mod_signature, _vmap_for_bhqkv,
        )  # fmt: skip

        for name, x in list(locals().items()):
            self.assertTrue(not name.startswith("_") or x is getattr(flex, name))
        self.assertFalse(hasattr(attnc.torch, "_no_such_name") or hasattr(attnc.torch, "functools"))
        q, k, v = operands("cpu", requires_grad=False, kv_heads=H)
        blocks = _convert_mask_to_block_mask(torch.ones(1, 1, Q_LEN, KV_LEN, dtype=torch.bool).tril(), 16, 16)
        mask = _create_sparse_block_from_block_mask(blocks, causal, (Q_LEN, KV_LEN), 16, 16)
        self.near(flex_attention(q, k, v, _identity, mask), by_definition(None, causal, q, k, v)[0])
        for name in ("create_block_mask", "flex_attention", "create_mask"):
            ours, theirs = (inspect.signature(getattr(of, name)).parameters for of in (attnc.torch, flex))
            ours = [parameter for parameter in ours.values() if parameter.kind is not parameter.VAR_KEYWORD]
            for parameter, wanted in zip(ours, theirs.values()):
                # `device` was "cuda" until 2.9.
                self.assertEqual((parameter.name, parameter.kind), (wanted.name, wanted.kind))
                self.assertTrue(parameter.default == wanted.default or parameter.name == "device", parameter)
            self.assertGreaterEqual(len(ours), len(theirs))

    def test_a_mask_that_changes(self):
        """A new mask of new tensors, as every step of a training makes it."""
        for device in self.each_device():
            q, k, v = operands(device, requires_grad=False, q_len=KV_LEN)
            for length in (30, 50, 30):
                documents = torch.arange(KV_LEN, device=device) // length
                mask = create_block_mask(
                    lambda b, h, q, k: documents[q] == documents[k], None, None, KV_LEN, KV_LEN, device=device
                )
                out = flex_attention(q, k, v, block_mask=mask, enable_gqa=True)
                expected, _ = by_definition(
                    None, lambda b, h, q, k: q // length == k // length, q.cpu(), k.cpu(), v.cpu()
                )
                self.near(out, expected)
                del mask
                gc.collect()

    def test_equal_launches_are_prepared_once(self):
        for device in self.each_device():
            mod = Biased(device)
            mask = create_block_mask(causal, None, None, Q_LEN, KV_LEN, device=device)
            made = []
            with unittest.mock.patch.object(kernels, "Call", side_effect=kernels.Call) as call:
                for seed in (1, 2, 3):
                    q, k, v = operands(device, seed=seed)
                    flex_attention(q, k, v, enable_gqa=True).sum().backward()
                    flex_attention(q, k, v, mod.score, mask, enable_gqa=True).sum().backward()
                    with torch.no_grad():
                        flex_attention(q, k, v, block_mask=mask, enable_gqa=True)
                    made.append(call.call_count)
            self.assertEqual(made[0], made[-1])

    def test_trains(self):
        torch.manual_seed(0)
        layer = torch.nn.Linear(D, 3 * D)
        table = torch.nn.Parameter(torch.zeros(2, 64))
        x = torch.randn(1, 64, D)
        optimizer = torch.optim.Adam([*layer.parameters(), table], 1e-2)
        losses = []
        for _ in range(8):
            q, k, v = layer(x).view(1, 64, 3, 2, D // 2).permute(2, 0, 3, 1, 4)
            out = flex_attention(q, k, v, lambda s, b, h, q, k: s + table[h, (q - k).abs()])
            loss = (out - x.view(1, 64, 2, D // 2).transpose(1, 2)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        self.assertLess(losses[-1], 0.9 * losses[0])
        self.assertTrue(table.any())

    def test_the_example_of_the_documents(self):
        text = (needs.ROOT / "docs/pytorch.md").read_text(encoding="utf-8")
        example = text.partition("flex_test.py -->\n```python\n")[2].partition("```")[0]
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(example, "pytorch.md", "exec"), {})
        losses = [float(line) for line in printed.getvalue().split()]
        self.assertEqual(len(losses), 5)
        self.assertLess(losses[-1], losses[0])

    def test_autocast(self):
        for device in self.each_device():
            q, k, v = operands(device, requires_grad=False)
            with torch.autocast(device, torch.bfloat16):
                self.assertEqual(flex_attention(q, k, v, enable_gqa=True).dtype, torch.bfloat16)

    def test_inside_of_compiled_models(self):
        """Closures over tensors of the graph, over parameters, and over tensors outside; in one graph."""
        for device in self.each_device():
            mod = Biased(device)
            q, k, v = operands(device)

            def model(q, k, v, gain):
                mask = create_block_mask(lambda b, h, q, k: q - k < 70, None, None, Q_LEN, KV_LEN, device=device)
                factor = gain.exp()
                scored = lambda s, b, h, q, k: mod.score(s, b, h, q, k) * factor[h]  # noqa: E731
                out, lse = flex_attention(q * 2, k, v, scored, mask, enable_gqa=True, return_lse=True)
                return out + lse.unsqueeze(-1)

            gain = torch.linspace(-1, 1, H, device=device).requires_grad_()
            leaves = q, k, v, gain, mod.table, mod.cap
            expected = model(q, k, v, gain)
            wanted = torch.autograd.grad(expected.square().sum(), leaves)
            for backend in ("eager", "aot_eager", *["inductor"] * (device == "cuda")):
                with self.subTest(backend):
                    torch._dynamo.reset()
                    actual = torch.compile(model, backend=backend, fullgraph=True)(q, k, v, gain)
                    self.assertEqual(actual.stride(), expected.stride())
                    self.near(actual, expected)
                    for x, y in zip(torch.autograd.grad(actual.square().sum(), leaves), wanted):
                        self.near(x, y)

    def test_inside_of_compiled_models_without_gradients(self):
        q, k, v = operands("cpu", requires_grad=False)
        made = flex.create_block_mask(causal, None, None, Q_LEN, KV_LEN, device="cpu")

        def model(q, k, v, mask):
            out, aux = flex_attention(
                q, k, v, block_mask=mask, enable_gqa=True, return_aux=AuxRequest(lse=True, max_scores=True)
            )
            return out, aux.lse, aux.max_scores

        expected = model(q, k, v, made)
        torch._dynamo.reset()
        compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
        for mask in (made, create_block_mask(causal, None, None, Q_LEN, KV_LEN, device="cpu")):
            for mode in (torch.no_grad, torch.inference_mode):
                with self.subTest(mode), mode():
                    for x, y in zip(compiled(q, k, v, mask), expected):
                        self.near(x, y)

    def test_a_mod_for_each_sequence(self):
        """What `which` names may be an operand of a graph, and another mixture compiles nothing."""
        q, k, v = (x.float() for x in operands("cpu"))
        slopes = torch.tensor([0.1, 0.2, 0.3, 0.4])[: q.shape[1]].requires_grad_()
        masks = [lambda b, h, q, k: q >= k, lambda b, h, q, k: (q >= k) | (k < 9), lambda b, h, q, k: q - k < 5]
        scores = [lambda s, b, h, q, k: s, lambda s, b, h, q, k: s + slopes[h % 4] * (k - q)]

        def model(q, k, v, which, of_scores):
            made = create_block_mask(choice(which, *masks), q.shape[0], None, Q_LEN, KV_LEN, device="cpu")
            return flex_attention(q, k, v, choice(of_scores, *scores), made, enable_gqa=True)

        compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
        for which, of_scores in (([2, 0], [0, 1]), ([1, 1], [1, 1]), ([0, 2], [1, 0])):
            of = torch.tensor(which), torch.tensor(of_scores)
            right, _ = by_definition(
                lambda s, b, h, q, k: torch.where(of[1][b] == 1, scores[1](s, b, h, q, k), s),  # noqa: B023
                lambda *at: torch.stack([mask(*at) for mask in masks])[of[0][at[0]]], q, k, v,  # noqa: B023
            )  # fmt: skip
            expected = torch.autograd.grad(right.square().sum(), (q, slopes), retain_graph=True)
            for function in (model, compiled):
                with torch._dynamo.config.patch(error_on_recompile=which != [2, 0]):
                    out = function(q, k, v, *of)
                self.near(out, right)
                for x, y in zip(torch.autograd.grad(out.square().sum(), (q, slopes)), expected):
                    self.near(x, y)

    def test_mods_that_torch_compile_cannot_trace(self):
        """They break the graph. Then they run, or are refused, as without torch.compile."""
        q, k, v = operands("cpu")
        seen = []

        def appends(b, h, q, k):
            seen.append(1)
            return q >= k

        def breaks(score, b, h, q, k):
            torch._dynamo.graph_break()
            return score * 2

        def branches(b, h, q, k):
            return q >= k and k > 3

        def model(q, k, v, mod):
            mask = None
            if mod in (appends, branches):
                mask, mod = create_block_mask(mod, None, None, Q_LEN, KV_LEN, device="cpu"), None
            return flex_attention(q * 2, k, v, mod, mask, enable_gqa=True)

        for mod in (appends, breaks, lambda *_: 1.0):
            with self.subTest(mod):
                torch._dynamo.reset()
                expected, actual = model(q, k, v, mod), torch.compile(model, backend="aot_eager")(q, k, v, mod)
                self.near(actual, expected)
                grads = [torch.autograd.grad(out.square().sum(), v)[0] for out in (actual, expected)]
                self.near(*grads)
                torch._dynamo.reset()
                with self.assertRaises(torch._dynamo.exc.Unsupported):
                    torch.compile(model, backend="aot_eager", fullgraph=True)(q, k, v, mod)
        for mod, kind, told in (
            (branches, attnc.errors.UntranslatableError, "Python decides a condition"),
            (lambda score, b, h, q: score, TypeError, "4 positional arguments but 5"),
        ):
            with self.subTest(told), self.assertRaisesRegex(kind, told):
                torch._dynamo.reset()
                torch.compile(model, backend="aot_eager")(q, k, v, mod)
        torch._dynamo.reset()
        with self.assertRaisesRegex(Exception, "branches"):
            torch.compile(model, backend="aot_eager", fullgraph=True)(q, k, v, branches)

    def test_what_searches_refuse(self):
        ends, order = torch.tensor([3, 9, 20]), torch.tensor([0, 1, 2])
        many = torch.zeros(1, dtype=torch.int8).expand(1 << 25)
        for mod, told in (
            (lambda b, h, q, k: torch.searchsorted(ends, q, sorter=order) > 1, "`searchsorted` needs sorted boundaries, and no `sorter`"),
            (lambda b, h, q, k: torch.bucketize(q, many) == torch.bucketize(k, many), "a sum over 33554432 elements; a loop has at most"),
        ):
            with self.subTest(told), self.assertRaisesRegex(attnc.errors.UntranslatableError, told):
                translate(None, mod)

    def test_tables_of_mods_inside_of_compiled_models(self):
        q, k, v = operands("cpu", requires_grad=False, kv_heads=H)
        mod = lambda s, b, h, q, k: s * torch.tensor([1.0, 2.0, 0.5, 0.25])[h]  # noqa: E731
        compiled = torch.compile(lambda q, k, v: flex_attention(q, k, v, mod), backend="aot_eager", fullgraph=True)
        self.near(compiled(q, k, v), by_definition(mod, None, q, k, v)[0])

    def test_numbers_in_tensors_inside_of_graphs(self):
        """They are of another run, and refused."""
        q, k, v = operands("cpu", requires_grad=False, kv_heads=H)
        factor = torch.tensor(2.0)
        scaled = lambda q, k, v: flex_attention(q, k, v, lambda s, b, h, q, k: s * float(factor))  # noqa: E731
        for record in (
            lambda: make_fx(scaled)(q, k, v),
            lambda: torch.jit.trace(scaled, (q, k, v)),
            lambda: torch.compile(scaled, backend="aot_eager", fullgraph=True)(q, k, v),
        ):
            with self.assertRaisesRegex(Exception, "asks for the number in a" + "|Tensor.item" * HAS_OLD_GRAPHS):
                record()

    def test_where_operations_are_recorded(self):
        """What is recorded computes attention of other operands, with gradients."""
        table = torch.randn(H, KV_LEN, generator=torch.Generator().manual_seed(6))
        lists = flex.create_block_mask(causal, None, None, Q_LEN, KV_LEN, device="cpu", BLOCK_SIZE=32)
        documents = torch.arange(KV_LEN) // 40

        def attend(q, k, v, bias, mask=None):
            mod = lambda s, b, h, q, k: (s + bias[h, k]) * torch.tensor([1.0, 2.0, 0.5, 0.25])[h]  # noqa: E731
            same = lambda b, h, q, k: documents[q] == documents[k]  # noqa: E731
            mask = mask or create_block_mask(same, None, None, Q_LEN, KV_LEN, device="cpu")
            return flex_attention(q * 2, k, v, mod, mask, enable_gqa=True)

        def under_lists(q, k, v, bias):
            return attend(q, k, v, bias * 2, lists)

        def trained(q, k, v, bias):
            leaves = [x.detach().requires_grad_() for x in (q, k, v, bias)]
            return torch.cat([x.flatten() for x in torch.autograd.grad(attend(*leaves).square().sum(), leaves)])

        class Model(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.bias = torch.nn.Parameter(table.clone())

            def forward(self, q, k, v, bias):
                return attend(q, k, v, self.bias + bias)

        recorders = {
            **{
                f"make_fx, {mode}": lambda f, given, mode=mode: make_fx(
                    f, tracing_mode=mode, _allow_non_fake_inputs=True
                )(*given)
                for mode in ("real", "fake", "symbolic")
            },
            "make_fx before dispatch": lambda f, given: make_fx(f, pre_dispatch=True)(*given),
            "jit.trace": lambda f, given: torch.jit.trace(f, given, check_trace=False),
            "export": lambda f, given: torch.export.export(f, given, strict=False).module(),
            "strict export": lambda f, given: torch.export.export(f, given, strict=True).module(),
        }
        given, others = (
            [*operands("cpu", requires_grad=False, seed=seed), table * factor] for seed, factor in ((1, 1), (2, 3))
        )
        for name, record in recorders.items():
            for function in (attend, under_lists, trained, Model()):
                is_model = isinstance(function, torch.nn.Module)
                if ("export" in name) != is_model or (name, function) == ("jit.trace", trained):
                    continue  # a trace has no autograd.grad
                if name == "strict export" and HAS_OLD_GRAPHS:
                    continue
                with self.subTest(f"{name} {getattr(function, '__name__', '')}"), warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    recorded = record(function if is_model else lambda *x: function(*x), tuple(given))
                    self.near(recorded(*others), function(*others))

    def test_tensors_without_memory(self):
        with FakeTensorMode():
            shapes = (B, H, Q_LEN, D), (B, HKV, KV_LEN, D), (B, HKV, KV_LEN, D)
            q, k, v = (torch.empty(shape, requires_grad=True) for shape in shapes)
            bias = torch.empty(H, requires_grad=True)
            mask = create_block_mask(causal, None, None, Q_LEN, KV_LEN, device="cpu")
            out = flex_attention(q, k, v, lambda s, b, h, q, k: s + bias[h], mask, enable_gqa=True)
            out.sum().backward()
            self.assertEqual([x.grad.shape for x in (q, k, v, bias)], [x.shape for x in (q, k, v, bias)])
        self.assertEqual(flex_attention(q, k, v, enable_gqa=True).shape, q.shape)

    def test_modes_that_watch_operations(self):
        """They see the operator, whose results are those without them; numbers are looked up as ever."""
        q, k, v = operands("cpu")
        factor, seen = torch.tensor(2.0), []

        class Mode(TorchDispatchMode):
            def __torch_dispatch__(self, function, types, args=(), kwargs=None):
                seen.append(str(function))
                return function(*args, **(kwargs or {}))

        def gradients():
            out = flex_attention(q, k, v, lambda s, b, h, q, k: s * float(factor), enable_gqa=True)
            return out, *torch.autograd.grad(out.square().sum(), (q, k, v))

        for number in (2.0, 3.0):
            factor.fill_(number)
            expected = gradients()
            with Mode():
                actual = gradients()
            for x, y in zip(actual, expected):
                self.near(x, y)
        self.assertEqual(seen.count("attnc.attention.default"), 2)
        self.assertEqual(seen.count("attnc.attention_backward.default"), 2)

    def test_nodes_of_graphs_are_lines(self):
        """Inductor's code for GPUs has them in comments."""
        nodes = []

        def kept(graph, _):
            nodes.extend(graph.graph.nodes)
            return graph.forward

        torch._dynamo.reset()
        mod = Biased("cpu")
        compiled = torch.compile(
            lambda q, k, v: flex_attention(q, k, v, mod.score, enable_gqa=True).sum(),
            backend=aot_autograd(fw_compiler=make_boxed_compiler(kept)), fullgraph=True,
        )  # fmt: skip
        compiled(*operands("cpu")).backward()
        lines = [node.format_node() for node in nodes if node.op == "call_function"]
        self.assertEqual(sum("target=torch.ops.attnc.attention" in line for line in lines), 2)
        for line in lines:
            self.assertNotIn("\n", line)

    def test_lengths_and_numbers_that_change_in_a_graph(self):
        torch._dynamo.reset()
        table = torch.randn(400, generator=torch.Generator().manual_seed(4))

        def mod(window):
            return lambda s, b, h, q, k: torch.where(q - k < window, s + table[(q - k).abs()], s / 2)

        @torch.compile(backend="aot_eager", fullgraph=True, dynamic=True)
        def model(q, k, v, window):
            return flex_attention(q, k, v, mod(window), enable_gqa=True)

        with torch._dynamo.config.patch(error_on_recompile=True):
            for length in (64, 100, 131):
                q, k, v = operands("cpu", requires_grad=False, q_len=length, kv_len=length)
                expected, _ = by_definition(mod(length // 3), None, q, k, v)
                self.near(model(q, k, v, length // 3), expected)

    def test_extents_of_captured_tensors_that_change_in_a_graph(self):
        """Two compilations at most: the first is of the extents at hand, the second of all."""

        def documents(x, ids, slopes, lengths, table):
            rows = x.shape[2]

            def mask_mod(b, h, q, k):
                return (ids[b, q] == ids[b, k]) & (k < lengths[b])

            def score_mod(s, b, h, q, k):
                return s + slopes[h] * (q - k) + table[q - k] + table[-1]

            mask = create_block_mask(mask_mod, x.shape[0], None, rows, rows, device="cpu")
            return score_mod, mask_mod, flex_attention(x, x, x, score_mod, mask)

        def biased(x, bias):
            score_mod = lambda s, b, h, q, k: s * 0.5 + bias[h, q, k]  # noqa: E731
            return score_mod, None, flex_attention(x, x, x, score_mod)

        def listed(x, ids):
            rows = x.shape[2]
            mask_mod = lambda b, h, q, k: ids[q] <= ids[k]  # noqa: E731
            mask = flex.create_block_mask(mask_mod, None, None, rows, rows, device="cpu")
            return None, mask_mod, flex_attention(x, x, x, block_mask=mask)

        generator = torch.Generator().manual_seed(5)
        random = lambda *shape: torch.randn(shape, generator=generator)  # noqa: E731
        given = {
            documents: lambda size: (
                random(size - 60, 3, size, D), torch.arange((size - 60) * (size + size % 7)).view(size - 60, -1) // 9,
                random(3), torch.arange(size - 60) * 9, random(2 * size + 1),
            ),
            biased: lambda size: (random(2, 3, size, D), random(3, size, size + 5).requires_grad_()),
            listed: lambda size: (random(1, 2, 3 * size, D), torch.arange(3 * size + 20) // 50),
        }  # fmt: skip
        for function, operands_of in given.items():
            for dynamic in (True, None) if function is documents else (None,):
                torch._dynamo.reset()
                counter = CompileCounterWithBackend("aot_eager")
                model = torch.compile(lambda *x: function(*x)[2], backend=counter, fullgraph=True, dynamic=dynamic)  # noqa: B023
                with self.subTest(f"{function.__name__} {dynamic}"):
                    for size in (62, 63, 68):
                        x, *captured = operands_of(size)
                        score_mod, mask_mod, _ = function(x, *captured)
                        expected, _ = by_definition(score_mod, mask_mod, x, x, x)
                        actual = model(x, *captured)
                        self.near(actual, expected)
                        if function is biased:
                            of_bias = [torch.autograd.grad(out.sin().sum(), captured)[0] for out in (actual, expected)]
                            self.near(*of_bias, 1e-4)
                    self.assertLessEqual(counter.frame_count, 2)

    def test_extents_that_a_graph_declares(self):
        def model(x, ids):
            rows = x.shape[2]
            mask_mod = lambda b, h, q, k: (ids[b, q] == ids[b, k]) & (q >= k)  # noqa: E731
            return flex_attention(
                x, x, x, block_mask=create_block_mask(mask_mod, x.shape[0], None, rows, rows, device="cpu")
            )

        class Model(torch.nn.Module):
            def forward(self, x, ids):
                return model(x, ids)

        given = lambda batch, rows: (torch.randn(batch, 3, rows, D), torch.arange(batch * rows).view(batch, -1) // 30)  # noqa: E731
        batch, rows = torch.export.Dim("batch", max=64), torch.export.Dim("rows", min=8, max=4096)
        shapes = {"x": {0: batch, 2: rows}, "ids": {0: batch, 1: rows}}
        programs = [torch.export.export(Model(), given(2, 40), dynamic_shapes=shapes, strict=False).module()]
        for marks in ([0], [1], [0, 1]):
            torch._dynamo.reset()
            counter = CompileCounterWithBackend("aot_eager")
            programs.append(torch.compile(model, backend=counter, fullgraph=True))
            for size in (40, 41, 70):
                x = given(2, size)
                for at in marks:
                    torch._dynamo.mark_dynamic(x[at], 2 - at)
                self.near(programs[-1](*x), model(*x))
            self.assertLessEqual(counter.frame_count, 2)
        for size in (33, 50):
            x = given(size // 10, size)
            self.near(programs[0](*x), model(*x))

    def test_sizes_that_mods_in_a_graph_ask_for(self):
        """Sizes in arithmetic, comparisons, bounds and indices are those of each launch: two compilations at most. What
        Python decides by one is compiled for it, and an export that shall be for others is refused."""
        where, clamp = torch.where, torch.clamp

        def computed(d, u, t):
            def score_mod(s, b, h, q, k):
                s = s + d[clamp(k, 1, d.shape[0] - 2)] - d[clamp(q, max=d.size(0) // 2)] + d[where(q < 9, d.shape[0] - 1, 0)]
                s = s + q // -(-d.shape[0] // 8) + d.shape[0] / (k + d.shape[0] % 7 + 1) + t.numel() / (q + 1)
                s = s + u[q] * u.shape[0] * 0.01  # wraps, as with a number
                return where((q < d.size(0) - 7) & (k != 40 - t.size(dim=-1)), s, 9)

            return score_mod

        free = {
            "computed": computed,
            "from the end": lambda d, u, t: lambda s, b, h, q, k: s + t[h, t.shape[1] - 1 - q, clamp(k, max=t.size(2) - 4)],
        }  # fmt: skip
        decided = {
            "if": lambda d, u, t: lambda s, b, h, q, k: s * 2 if d.shape[0] > 60 else s,
            "range": lambda d, u, t: lambda s, b, h, q, k: s + sum(d[q // (i + 2)] for i in range(d.shape[0] // 30)),
            "max": lambda d, u, t: lambda s, b, h, q, k: where(q < max(d.shape[0] - 30, 4), s * 2, s),
            "fraction": lambda d, u, t: lambda s, b, h, q, k: s * (8 / d.shape[0]),
            "view": lambda d, u, t: lambda s, b, h, q, k: s + d.view(d.shape[0], 1)[q, 0],
            "of a result": lambda d, u, t: lambda s, b, h, q, k: s * 2 if (d + 1).shape[0] > 60 else s,
        }  # fmt: skip

        def given(size):
            rows = torch.arange(size)
            generator = torch.Generator().manual_seed(size)
            return (
                torch.randn(1, 2, size, D, generator=generator), rows // 9, (rows * 7 % 256).to(torch.uint8),
                torch.randn(2, size, size + 3, generator=generator).requires_grad_(),
            )  # fmt: skip

        class Model(torch.nn.Module):
            def forward(self, x, d, u, t):
                return model(x, d, u, t)

        rows = torch.export.Dim("rows", min=8, max=4096)
        shapes = {"x": {2: rows}, "d": {0: rows}, "u": {0: rows}, "t": {1: rows, 2: rows + 3}}
        export = lambda: torch.export.export(Model(), given(33), dynamic_shapes=shapes, strict=False).module()  # noqa: E731
        for name, make in {**free, **decided}.items():
            model = lambda x, *captured: flex_attention(x, x, x, make(*captured))  # noqa: B023, E731
            torch._dynamo.reset()
            counter = CompileCounterWithBackend("aot_eager")
            models = [torch.compile(model, backend=counter, fullgraph=True)]
            with self.subTest(name):
                if name in free:
                    models.append(export())
                else:
                    self.assertRaisesRegex(torch._dynamo.exc.UserError, "rows", export)
                for size in (33, 34, 75) if name in free else (33, 75):
                    x, *captured = given(size)
                    for compiled in models:
                        outs = compiled(x, *captured), by_definition(make(*captured), None, x, x, x)[0]
                        self.near(*outs)
                        if name == "from the end":
                            self.near(*[torch.autograd.grad(out.sin().sum(), captured[-1])[0] for out in outs], 1e-4)
                if name in free:
                    self.assertLessEqual(counter.frame_count, 2)

    def test_tensors_of_which_a_mod_in_a_graph_asks_only_the_size(self):
        """They have no gradient, and may be of any dtype."""
        model = lambda x, t: flex_attention(x, x, x, lambda s, b, h, q, k: torch.where(q < t.shape[0] - 7, s * 2, s))  # noqa: E731
        for dtype in (torch.float32, torch.float64):
            torch._dynamo.reset()
            compiled = torch.compile(model, backend="aot_eager", fullgraph=True, dynamic=True)
            for size in (40, 50):
                x, t = torch.randn(1, 2, size, D, requires_grad=True), torch.randn(size, dtype=dtype, requires_grad=True)
                actual, expected = compiled(x, t), model(x, t)
                self.near(actual, expected)
                of_x, of_t = torch.autograd.grad(actual.sum(), (x, t), allow_unused=True)
                self.near(of_x, torch.autograd.grad(expected.sum(), x)[0], 1e-4)
                self.assertIsNone(of_t)

    def test_fractions_that_change_in_a_graph(self):
        q, k, v = operands("cpu", requires_grad=False, kv_heads=H)
        for dynamic in (True, None):
            torch._dynamo.reset()
            scaled = lambda s, b, h, q, k, *factor: s * factor[0]  # noqa: E731

            @torch.compile(backend="aot_eager", fullgraph=True, dynamic=dynamic)
            def model(q, k, v, factor):
                return flex_attention(q, k, v, lambda *args: scaled(*args, factor))

            for factor in (0.5, 0.75, 2.25):
                expected, _ = by_definition(lambda *args: scaled(*args, factor), None, q, k, v)  # noqa: B023
                self.near(model(q, k, v, factor), expected)

    @unittest.skipUnless("cuda" in DEVICES, "there is no GPU")
    def test_workspaces_are_initialised_once(self):
        """Only block lists are made anew for another mask."""
        q, k, v = operands("cuda", torch.bfloat16, requires_grad=False, q_len=1, kv_len=4096)
        first = torch.tensor([100, 4000], device="cuda", dtype=torch.int32)
        rows = torch.randn(B, H, KV_LEN, D, device="cuda", dtype=torch.bfloat16)
        at = lambda extent: torch.arange(extent, device="cuda")  # noqa: E731
        documents = [at(KV_LEN) // size for size in (30, 50)]
        since = [lambda b, h, q, k, n=n: k >= first[b] + n for n in (0, 7)]
        same = [lambda b, h, q, k, of=of: of[q] == of[k] for of in documents]
        for mods, given, expected in ((since, (q, k, v), 2), (same, (rows, rows, rows), 6)):
            masks = [create_block_mask(mod, B, None, given[0].shape[2], given[1].shape[2], device="cuda") for mod in mods]
            library, made = kernels.library(), []

            class Counting:
                def __getattr__(self, name):
                    made.extend([name] * (name == "attnc_prepared_initialise"))  # noqa: B023
                    return getattr(library, name)  # noqa: B023

            with unittest.mock.patch.object(kernels, "library", Counting):
                for _ in range(3):
                    for mod, mask in zip(mods, masks):
                        out = flex_attention(*given, block_mask=mask, enable_gqa=True)
                        live = mod(at(B)[:, None, None, None], 0, at(given[0].shape[2])[:, None], at(given[1].shape[2]))
                        live = live.expand(B, 1, given[0].shape[2], given[1].shape[2])
                        expected_out = torch.nn.functional.scaled_dot_product_attention(
                            *given, attn_mask=live, enable_gqa=True
                        )
                        self.near(out, expected_out, 2e-2)
            self.assertEqual(len(made), expected)

    @unittest.skipUnless("cuda" in DEVICES, "there is no GPU")
    def test_cuda_graphs(self):
        """A graph of eager calls, and those of a compiled model; with other numbers, masks and neighbours at each replay."""
        mod = Biased("cuda")
        window = torch.tensor(20, device="cuda")
        q, k, v = operands("cuda", torch.bfloat16, q_len=KV_LEN)

        def step(q, k, v):
            mask = create_block_mask(lambda b, h, q, k: (q - k).abs() < window, None, None, KV_LEN, KV_LEN, device="cuda")
            out = flex_attention(q, k, v, mod.score, mask, enable_gqa=True)
            return out, *torch.autograd.grad(out.float().square().sum(), (q, k, v, mod.table))

        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            step(q, k, v)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            results = step(q, k, v)
        torch._dynamo.reset()
        compiled = torch.compile(
            lambda q, k, v: flex_attention(
                q, k, v, mod.score,
                create_block_mask(lambda b, h, q, k: (q - k).abs() < window, None, None, KV_LEN, KV_LEN, device="cuda"),
                enable_gqa=True,
            ),
            mode="reduce-overhead",
            fullgraph=True,
        )  # fmt: skip
        for size in (20, 3, 90):
            window.fill_(size)
            with torch.no_grad():
                q.normal_()
                flex_attention(q, k, v, enable_gqa=True)  # another launch on this stream between
            graph.replay()
            for x, y in zip(results, step(q, k, v)):
                self.near(x, y, 2e-3)
            with torch.no_grad():
                self.near(compiled(q, k, v), results[0], 2e-3)

    def test_the_operator(self):
        q, k, v = operands("cpu")
        mod = Biased("cpu")
        translation = translate(mod.score, problem=(B, H, HKV, Q_LEN, KV_LEN))
        names = [capture.name for capture in attnc.Mod.parse_ir(translation.text).captures]
        captured, wanted = [translation.tensors[name] for name in names], " ".join(names)

        def call(q, k, v):
            return torch.ops.attnc.attention(translation.text, q, k, v, captured, [], D**-0.5, wanted, False, None, None, 0, None)

        out, _, _ = torch.compile(call, backend="aot_eager", fullgraph=True)(q, k, v)
        expected, _ = by_definition(mod.score, None, q, k, v)
        self.near(out, expected)
        actual = torch.autograd.grad(out.sum(), (q, mod.table))
        for x, y in zip(actual, torch.autograd.grad(expected.sum(), (q, mod.table))):
            self.near(x, y)

    def test_gradients_of_padded_batches(self):
        """The operator with kv_lengths. Queries stand at the last keys; rows of k and v behind a length are NaN."""
        text = attnc.Mod.parse("q_idx >= kv_idx").ir
        for device in self.each_device():
            q, k, v = operands(device)
            generator = torch.Generator().manual_seed(3)
            for lengths in ([KV_LEN, 77], [0, 1]):
                lengths = torch.tensor(lengths, dtype=torch.int32, device=device)
                is_live = torch.arange(KV_LEN, device=device) < lengths[:, None]
                poisoned = [
                    torch.where(is_live[:, None, :, None], x.detach(), torch.nan).requires_grad_() for x in (k, v)
                ]
                live = lambda b, h, q, k: (q + lengths[b] - Q_LEN >= k) & (k < lengths[b])  # noqa: B023, E731
                out, lse, _ = torch.ops.attnc.attention(
                    text, q, *poisoned, [], [], D**-0.5, "", False, lengths, None, 0, None
                )
                expected, of_rows = by_definition(None, live, q, k, v)
                dout, dlse = (torch.randn(x.shape, generator=generator).to(x) for x in (out, lse))
                has_keys = of_rows.isfinite()
                actual = torch.autograd.grad([out, lse], [q, *poisoned], [dout, dlse])
                wanted = torch.autograd.grad(
                    [expected, of_rows[has_keys]], [q, k, v], [dout.to(expected), dlse[has_keys].to(expected)]
                )
                limit = 2e-5 if device == "cpu" else 2e-3
                self.near(out, expected, limit)
                for x, y in zip(actual, wanted):
                    self.near(x, y, limit)
                for x in actual[1:]:
                    self.assertFalse(x.masked_select(~is_live[:, None, :, None]).any())

    def test_tables_that_are_too_short(self):
        q, k, v = operands("cpu", requires_grad=False)
        short = {"slopes": 3, "of_q": Q_LEN - 1, "of_kv": KV_LEN - 1, "groups": 1, "of_batch": 1}
        slopes, of_q, of_kv, groups, of_batch = (torch.ones(size) for size in short.values())
        table, documents = torch.ones(H, KV_LEN, 2), torch.zeros(KV_LEN, dtype=torch.int64)
        score_mods = {
            "`slopes` at h, which reaches 3, on axis 0, whose extent is 3": lambda s, b, h, q, k: s * slopes[h],
            "`of_q` at q_idx, which reaches 129, on axis 0": lambda s, b, h, q, k: s + of_q[q],
            "`of_kv` at kv_idx, which reaches 139, on axis 0": lambda s, b, h, q, k: s + of_kv[k],
            "`groups` at h // 2, which reaches 1, on axis 0": lambda s, b, h, q, k: s * groups[h // 2],
            "`of_batch` at b, which reaches 1, on axis 0": lambda s, b, h, q, k: s + of_batch[b],
            "`table` at kv_idx \\+ 1, which reaches 140, on axis 1": lambda s, b, h, q, k: s + table[h, k + 1, 0],
            "`documents` at q_idx \\* 2, which reaches 258": lambda s, b, h, q, k: s + documents[2 * q],
            "`of_kv` at kv_idx, which": lambda s, b, h, q, k: torch.where(k < 9, s + (of_kv[k] * 2), s),
        }
        for fragment, score_mod in score_mods.items():
            with self.subTest(fragment):
                attend = lambda q, k, v: flex_attention(q, k, v, score_mod, enable_gqa=True)  # noqa: B023, E731
                with self.assertRaisesRegex(IndexError, fragment):
                    attend(q, k, v)
                with self.assertRaisesRegex(IndexError, fragment):
                    make_fx(attend)(q, k, v)
                for dynamic in (False, True):
                    torch._dynamo.reset()
                    compiled = torch.compile(attend, backend="aot_eager", fullgraph=True, dynamic=dynamic)
                    # torch.compile has names of its own.
                    told = re.sub("`.*?`", "`.*`", fragment) + "|_local_scalar_dense" * HAS_OLD_GRAPHS
                    with self.assertRaisesRegex(Exception, told):
                        compiled(q, k, v)
        mask_mod = lambda b, h, q, k: documents[q] == of_kv[k]  # noqa: E731
        with self.assertRaisesRegex(IndexError, "`of_kv` at kv_idx"):
            flex_attention(q, k, v, block_mask=create_block_mask(mask_mod, 1, 1, Q_LEN, KV_LEN, "cpu"), enable_gqa=True)
        # What shapes do not decide is clamped.
        window = torch.arange(8.0)
        for score_mod in (
            lambda s, b, h, q, k: torch.where(q - k < 8, s + window[q - k], s),
            lambda s, b, h, q, k: s + window[(q // 2).clamp(max=7)],
            lambda s, b, h, q, k: s + window[q % 8],
            lambda s, b, h, q, k: s + window[torch.where(q < 8, q, 0)],
            lambda s, b, h, q, k: s + table[h, k - KV_LEN, 0] * of_q[q - 1],
        ):
            flex_attention(q, k, v, score_mod, enable_gqa=True)

    def test_tables_in_a_graph_of_any_length(self):
        table = torch.ones(100)
        torch._dynamo.reset()

        @torch.compile(backend="aot_eager", fullgraph=True, dynamic=True)
        def model(q):
            return flex_attention(q, q, q, lambda s, b, h, q, k: s + table[k])

        for length in (64, 77, 100):
            model(torch.randn(1, 2, length, D))
        with self.assertRaisesRegex(Exception, "reaches 100"):
            model(torch.randn(1, 2, 101, D))

    def test_lists_are_those_of_pytorch(self):
        """The library judges their blocks. None is evaluated by PyTorch unless attnc cannot tell."""
        generator, random_of = torch.Generator().manual_seed(6), random.Random(6)
        whole, looked_up = flex.create_block_mask, []
        for case in range(40):
            batch, heads = random_of.choice([(None, None), (1, 1), (2, 3), (3, None), (None, 4)])
            q_len, kv_len = random_of.choice([(130, 200), (1, 1), (256, 256), (300, 517), (64, 600), (513, 129)])
            size = random_of.choice([128, 64, 256, (64, 128), (128, 64), 512, (192, 64), (1024, 320), (16, 32)])
            documents = torch.randint(0, 4, (batch or 1, max(q_len, kv_len)), generator=generator).sort(-1).values
            table = torch.rand(q_len, kv_len, generator=generator) < random_of.choice([0.5, 0.002, 0.9999])
            shift = torch.randint(-200, 200, (heads or 1,), generator=generator)
            window = random_of.choice([1, 17, 64, 128])
            mask_mod = random_of.choice((and_masks, or_masks))(*random_of.sample((
                causal, lambda b, h, q, k: (q - k).abs() <= window, lambda b, h, q, k: documents[b, q] == documents[b, k],
                lambda b, h, q, k: k < documents[b, 0] * 99, lambda b, h, q, k: q + shift[h] >= k,
                lambda b, h, q, k: table[q, k], lambda b, h, q, k: q // window % 2 == k // window % 2,
                lambda b, h, q, k: q == q,
            ), 2))  # fmt: skip
            given = mask_mod, batch, heads, q_len, kv_len, "cpu", size
            expected, made = whole(*given), create_block_mask(*given)
            with unittest.mock.patch.object(flex, "create_block_mask") as evaluated:
                evaluated.side_effect = whole
                for name in flex.BlockMask.__annotations__:
                    actual, right = getattr(made, name), getattr(expected, name)
                    if isinstance(right, torch.Tensor):
                        torch.testing.assert_close(actual, right, rtol=0, atol=0, check_stride=True)
                    elif name != "mask_mod":
                        self.assertEqual(actual, right)
            looked_up.append(evaluated.called)
            self.assertEqual(evaluated.called, size == (16, 32), (case, size))
            self.assertEqual((str(made), made.sparsity()), (str(expected), expected.sparsity()))
        self.assertIn(True, looked_up)
        ids = torch.arange(1 << 17) // 512
        with unittest.mock.patch.object(flex, "create_block_mask", side_effect=AssertionError):
            long = create_block_mask(lambda b, h, q, k: (ids[q] == ids[k]) & (q >= k), 1, 1, 1 << 17, 1 << 17, device="cpu")
            self.assertEqual(int(long.kv_num_blocks.sum() + long.full_kv_num_blocks.sum()), 256 * 10)
            self.assertEqual(int(long.to_dense().sum()), 256 * 10)
        untranslatable = lambda b, h, q, k: torch.special.i0((q - k).float()) < 9  # noqa: E731
        given = untranslatable, None, None, 300, 300, "cpu"
        self.assertTrue(torch.equal(create_block_mask(*given).to_dense(), whole(*given).to_dense()))

    def test_lists_take_little_memory(self):
        """64 MB for causal documents of 128k tokens, with the picture of blocks. 128k x 128k scores would be 16 GB."""
        code = """
import resource, torch
from attnc.torch import create_block_mask
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
def read(length):
    ids = torch.arange(length) // 512
    mask = create_block_mask(lambda b, h, q, k: (ids[q] == ids[k]) & (q >= k), 1, 1, length, length, device="cpu")
    return str(mask), mask.sparsity(), mask.to_dense(), mask.kv_indices
read(512)
before = peak()
read(1 << 17)
print(peak() - before)
"""
        path = {"PYTHONPATH": str(needs.ROOT / "tools" / "python")}
        run = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={**os.environ, **path}
        )
        self.assertLess(float(run.stdout), 64)

    def test_operands_of_different_dtypes(self):
        """The result has the dtype of query, as FlexAttention's without torch.compile, and gradients those of their tensors."""
        full = operands("cpu", requires_grad=False, kv_heads=H)
        for dtypes in itertools.product((torch.float32, torch.float16, torch.bfloat16), repeat=3):
            q, k, v = (x.to(dtype).requires_grad_() for x, dtype in zip(full, dtypes))
            out, lse = flex_attention(q, k, v, lambda s, b, h, q, k: s * 0.5, return_lse=True)
            expected, expected_lse = by_definition(lambda s, b, h, q, k: s * 0.5, None, q, k, v)
            self.assertEqual((out.dtype, lse.dtype), (q.dtype, torch.float32))
            self.near(out.float(), expected.float(), 1e-2)
            self.near(lse, expected_lse.float(), 1e-3)
            gradients = torch.autograd.grad(out.float().sin().sum(), (q, k, v))
            self.assertEqual([x.dtype for x in gradients], [*dtypes])
        torch._dynamo.reset()
        compiled = torch.compile(lambda q, k, v: flex_attention(q, k, v), backend="aot_eager", fullgraph=True)
        q, k, v = full[0].bfloat16(), *full[1:]
        self.assertTrue(torch.equal(compiled(q, k, v), flex_attention(q, k, v)))
        with self.assertRaisesRegex(ValueError, "key is torch.float64"):
            flex_attention(q, k.double(), v)

    def test_what_mods_that_cannot_be_traced_are_told(self):
        q = operands("cpu", requires_grad=False, kv_len=Q_LEN, kv_heads=H)[0]
        values, array, table = {0: 1.0, 1: 2.0}, numpy.ones(H), torch.ones(H)
        sparse, complex = torch.eye(Q_LEN).to_sparse(), torch.ones(Q_LEN, dtype=torch.complex64)

        def written(s, b, h, q, k):
            table[h] = 3.0
            return s + table[h]

        def chained(s, b, h, q, k):
            return torch.where(0 <= q - k <= 10, s, 0)

        def joined(s, b, h, q, k):
            return torch.where(q >= k and q < 5, s, 0)

        def branching(s, b, h, q, k):
            if q >= k:
                return s
            return s / 2

        for told, score_mod in {
            r"(?s)flex_test.py:\d+:.* a dict .*torch.tensor\(\[...\]\)\[h\]": lambda s, b, h, q, k: s + values[h],
            r"flex_test.py:\d+:\d+: error: (.*\n){3}.*torch.tensor\(array\)\[h\]": lambda s, b, h, q, k: s + array[h],
            r"(?s)flex_test.py:\d+:\d+: error: `numpy` has no `exp`.*`torch.exp`": lambda s, b, h, q, k: numpy.exp(s),
            r"(?s)flex_test.py:\d+:\d+: error: `math.exp` needs.*`torch.exp`": lambda s, b, h, q, k: s * math.exp(k),
            r"flex_test.py:\d+: .*writes into a tensor.*use torch.where": written,
            r"(?s)flex_test.py:\d+:\d+: error: .*`\(0 <= q - k\) & \(q - k <= 10\)`": chained,
            r"write `\(q >= k\) & \(q < 5\)`": joined,
            r"write `torch.where\(q >= k, a, b\)`": branching,
            "layout torch.sparse_coo: capture its .to_dense": lambda s, b, h, q, k: s + sparse[q, k],
            "`complex`, .*capture complex.real and complex.imag": lambda s, b, h, q, k: s + complex[k].real,
            "(?s)must take score, b, h, q_idx and kv_idx.*block_mask=create_block_mask": causal,
        }.items():
            with self.subTest(told), self.assertRaisesRegex(attnc.errors.UntranslatableError, told):
                flex_attention(q, q, q, score_mod)
        given = torch.ones(1, 1, 2, dtype=torch.int32), torch.zeros(1, 1, 2, 2, dtype=torch.int32)
        mask = flex.BlockMask.from_kv_blocks(*given, mask_mod=chained, seq_lengths=(Q_LEN, Q_LEN))
        with self.assertRaisesRegex(attnc.errors.UntranslatableError, "chained must take b, h, q_idx and kv_idx"):
            flex_attention(q, q, q, block_mask=mask)
        with self.assertRaisesRegex(KeyError, "'own'"):
            flex_attention(q, q, q, lambda s, b, h, q, k: values["own"])
        bias = torch.randn(2, Q_LEN)
        taken, _ = by_definition(lambda s, b, h, q, k: s + bias.view(-1)[k + 7], None, q, q, q)
        self.near(flex_attention(q, q, q, lambda s, b, h, q, k: s + bias.take(k + 7)), taken)

    def test_what_wrong_operands_are_told(self):
        q, k, v = operands("cpu", requires_grad=False)
        causal_of = lambda batch, heads: create_block_mask(causal, batch, heads, Q_LEN, KV_LEN, device="cpu")  # noqa: E731
        for _ in range(3):  # a call like these is kept
            flex_attention(q, k, v, block_mask=causal_of(None, None), enable_gqa=True)
        for fragment, call in {
            "enable_gqa=True": lambda: flex_attention(q, k, v),
            "no multiple": lambda: flex_attention(q[:, :3], k, v, enable_gqa=True),
            "float64": lambda: flex_attention(q.double(), k.double(), v.double(), enable_gqa=True),
            "move them to one device": lambda: flex_attention(q, k.to("meta"), v, enable_gqa=True),
            "block_mask is of batch 3": lambda: flex_attention(q, k, v, block_mask=causal_of(3, None), enable_gqa=True),
            "block_mask is of heads 8": lambda: flex_attention(q, k, v, block_mask=causal_of(None, 8), enable_gqa=True),
            "dims": lambda: flex_attention(q[0], k[0], v[0]),
            "batch": lambda: flex_attention(q, k[:1], v[:1], enable_gqa=True),
            "create one of these lengths": lambda: flex_attention(
                q, k, v, block_mask=create_block_mask(causal, 1, 1, 64, 64, device="cpu"), enable_gqa=True
            ),
            "columns": lambda: flex_attention(q, k[..., :8], v, enable_gqa=True),
            "BACKEND is 'CUDA'": lambda: flex_attention(q, q, q, kernel_options={"BACKEND": "CUDA"}),
            "give only BACKEND": lambda: flex_attention(
                q, q, q, kernel_options={"BACKEND": "TRITON", "FORCE_USE_FLEX_ATTENTION": True}
            ),
        }.items():
            with self.subTest(fragment):
                with self.assertRaises((ValueError, RuntimeError)) as caught:
                    call()
                self.assertIn(fragment, str(caught.exception))
        mask = create_block_mask(causal, None, None, KV_LEN, KV_LEN, device="cpu")
        for fragment, call in {
            "block_mask is a Tensor: give create_block_mask": lambda: flex_attention(k, k, k, block_mask=torch.ones(8, 8)),
            "score_mod is a BlockMask: give block_mask=": lambda: flex_attention(k, k, k, mask),
        }.items():
            with self.subTest(fragment), self.assertRaisesRegex(TypeError, fragment):
                call()
        with self.assertRaisesRegex(ValueError, "head dim 0"):
            flex_attention(k[..., :0], k[..., :0], k)
        double, text = torch.randn(1, 2, 8, D, dtype=torch.float64), translate(None, causal).text
        for call in (
            lambda: attnc.torch.explain(double, double, double, arch="sm_90a"),
            lambda: torch.ops.attnc.attention(text, *[double] * 3, [], [], 1.0, None, False, None, None, 0, None),
        ):
            with self.assertRaisesRegex(ValueError, "float64; attnc computes bfloat16, float16 and float32"):
                call()
        for kind in (ValueError, RuntimeError):  # before PyTorch 2.14, and since
            with self.assertRaises(kind):
                flex_attention(q, q, q, block_mask=create_block_mask(causal, 1, 1, 64, 64, device="cpu"))
        for call in (flex_attention, attnc.torch.explain):
            for name, value in ("tile", 64), ("backward_tile", 64), ("low_rank_error", "1"), ("family", "sm70"):
                with self.assertRaisesRegex(TypeError, f"{name} is {value!r}; it must be "):
                    call(q, q, q, kernel_options={name: value})
        for name, nearest in (
            ("fp_8", "fp8"), ("FP8", "fp8"), ("tiles", "tile"), ("backwardTile", "backward_tile"),
            ("lowRankError", "low_rank_error"), *((name.upper(), name) for name in OPTIONS),
        ):  # fmt: skip
            with self.assertRaisesRegex(TypeError, f"kernel_options has '{name}': write '{nearest}'"):
                flex_attention(q, q, q, kernel_options={name: True})
        flex_attention(q, q, q, kernel_options={"num_warps": 4, "fwd_num_stages": 2, "PRESCALE_QK": True})
        if hasattr(flex, "_sliced_mask_mod_error"):  # before 2.9, PyTorch forgets mask_mod instead
            sliced = flex.create_block_mask(causal, 1, 1, Q_LEN, KV_LEN, device="cpu")[0]
            with self.assertRaisesRegex(RuntimeError, "sliced"):
                flex_attention(q, k, v, block_mask=sliced, enable_gqa=True)

    def test_classes_of_tensors_that_are_refused(self):
        """By what to do."""
        if not torch.distributed.is_available():
            return
        from torch.distributed.tensor import DTensor, Replicate, init_device_mesh

        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0", RANK="0", WORLD_SIZE="1")
        with tempfile.TemporaryDirectory() as folder:
            torch.distributed.init_process_group("gloo", f"file://{folder}/store", rank=0, world_size=1)
            try:
                mesh = init_device_mesh("cpu", (1,))
                q = torch.randn(1, H, 8, D)
                x = DTensor.from_local(q, mesh, [Replicate()])
                with self.assertRaisesRegex(NotImplementedError, r"query is a DTensor: give query.to_local\(\)"):
                    flex_attention(x, x, x)
                with self.assertRaisesRegex(NotImplementedError, "key is a DTensor"):
                    flex_attention(q, x, q)
                self.near(flex_attention(*[x.to_local()] * 3), flex_attention(q, q, q))
            finally:
                torch.distributed.destroy_process_group()


ALIBI = """
slopes: f32[H]
window: int

def score_mod(score, b, h, q_idx, kv_idx):
    return score + slopes[h] * (kv_idx - q_idx)

def mask_mod(b, h, q_idx, kv_idx):
    return q_idx - kv_idx <= window
"""
WINDOW = """
WINDOW = 8
t: bf16[H, 4]

def mask_mod(b, h, q_idx, kv_idx):
    return q_idx - kv_idx < WINDOW + t[h, 0]
"""


class TextTest(unittest.TestCase):
    """The interface without autograd, on what has DLPack."""

    def test_arrays_of_several_libraries(self):
        q, k, v = operands("cpu", requires_grad=False)
        mod = attnc.Mod.parse(ALIBI)
        slopes = torch.tensor([0.5, 0.25, 0.125, 0.0625])
        expected, expected_lse = by_definition(
            lambda s, b, h, q, k: s + slopes[h] * (k - q), lambda b, h, q, k: q - k <= 9, q, k, v
        )
        out, lse = attnc.attention(mod, q, k, v, captures={"slopes": slopes, "window": 9}, return_lse=True)
        self.assertLess(relative_error(out, expected), 1e-6)
        self.assertLess(relative_error(lse, expected_lse), 1e-6)
        try:
            import numpy
        except ImportError:
            return
        captures = {"slopes": slopes.numpy(), "window": 9}
        result = attnc.attention(mod, q.numpy(), k.numpy(), v.numpy(), captures=captures)
        self.assertIsInstance(result, numpy.ndarray)
        self.assertTrue(numpy.array_equal(result, out.numpy()))
        into = numpy.zeros_like(result)
        self.assertIs(attnc.attention(mod, q, k, v, captures=captures, out=into), into)
        self.assertTrue(numpy.array_equal(into, result))

    def test_views_of_torch_are_what_they_seem(self):
        q, k, v = operands("cpu", requires_grad=False)
        slopes = torch.tensor([0.5, 0.25, 0.125, 0.0625])
        captures = {"slopes": slopes, "window": 9}
        expected = attnc.attention(ALIBI, q, k, v, captures=captures)
        opposite = lambda x: torch.complex(torch.zeros_like(x), -x).conj().imag  # noqa: E731
        self.assertTrue(opposite(q).is_neg())
        self.assertTrue(torch.equal(attnc.attention(ALIBI, opposite(q), k, opposite(v), captures=captures), expected))
        negated = {"slopes": opposite(slopes), "window": 9}
        self.assertTrue(torch.equal(attnc.attention(ALIBI, q, k, v, captures=negated), expected))
        grouped = {"enable_gqa": True}
        self.assertTrue(torch.equal(flex_attention(opposite(q), k, v, **grouped), flex_attention(q, k, v, **grouped)))
        with self.assertRaisesRegex(attnc.ArgumentError, "out is a view with the opposite sign"):
            attnc.attention(ALIBI, q, k, v, captures=captures, out=opposite(torch.zeros_like(expected)))
        strided = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, v)]
        self.assertTrue(torch.equal(attnc.attention(ALIBI, *strided, captures=captures), expected))
        self.assertTrue(torch.equal(attnc.attention(ALIBI, torch.nn.Parameter(q, False), k, v, captures=captures), expected))
        with self.assertRaises((BufferError, RuntimeError, ValueError)):
            attnc.attention(ALIBI, q.to_sparse(), k, v, captures=captures)
        self.assertEqual(attnc.attention(ALIBI, q[:, :, :0], k, v, captures=captures).shape[2], 0)

    def test_read_only_arrays(self):
        try:
            import numpy
        except ImportError:
            self.skipTest("NumPy is not installed")
        q, k, v = (x.numpy() for x in operands("cpu", requires_grad=False))
        k, v = (numpy.broadcast_to(x[:1], x.shape) for x in (k, v))
        slopes = numpy.asarray([0.5, 0.25, 0.125, 0.0625], numpy.float32)
        expected = attnc.attention(ALIBI, q, k.copy(), v.copy(), captures={"slopes": slopes, "window": 9})
        for array in (q, slopes):
            array.setflags(write=False)
        out = attnc.attention(ALIBI, q, k, v, captures={"slopes": slopes, "window": 9})
        self.assertTrue(numpy.array_equal(out, expected))
        self.assertFalse(q.flags.writeable or slopes.flags.writeable)
        out.setflags(write=False)
        with self.assertRaisesRegex(attnc.ArgumentError, "out is read-only: give"):
            attnc.attention("score", q, k, v, out=out)
        with self.assertRaisesRegex(attnc.ArgumentError, "k is read-only"):
            attnc.attention("score", q, k, v, new_k=k, new_v=v, kv_lengths=numpy.full(len(q), k.shape[2], numpy.int32))

    def test_caches(self):
        q, k, v = (x.detach() for x in operands("cpu", requires_grad=False))
        batch, heads, rows, dim = k.shape
        lengths = torch.tensor([rows, rows - 7][:batch], dtype=torch.int32)
        starts = torch.tensor([3, 0][:batch], dtype=torch.int32)
        live = lambda b, h, q, k: (q + starts[b] >= k) & (k < lengths[b])  # noqa: E731
        expected, _ = by_definition(None, live, q, k, v)
        given = {"kv_lengths": lengths, "q_offsets": starts}
        out = attnc.attention("q_idx >= kv_idx", q, k, v, **given)
        self.assertLess(relative_error(out, expected), 1e-6)

        # The same in pages, whose last rows are written by the launch.
        new = 5
        pages = -(-rows // 8)
        order = torch.arange(batch * pages).flip(0).reshape(batch, pages)
        pools = []
        for x in (k, v):
            x = x.clone()
            for b in range(batch):
                x[b, :, lengths[b] - new :] = torch.nan
            padded = torch.nn.functional.pad(x, (0, 0, 0, pages * 8 - rows), value=torch.nan)
            pool = torch.empty(batch * pages, heads, 8, dim)
            pool[order.flatten()] = padded.unflatten(2, (pages, 8)).transpose(1, 2).flatten(0, 1)
            pools.append(pool)
        end = [slice(int(length) - new, int(length)) for length in lengths]
        given = {"kv_lengths": lengths, "page_table": order.int()}
        given |= {name: torch.stack([x[b, :, at] for b, at in enumerate(end)]) for name, x in (("new_k", k), ("new_v", v))}
        out = attnc.attention("q_idx >= kv_idx", q[:, :, :new], *pools, **given)
        starts = lengths - new
        expected, _ = by_definition(None, live, q[:, :, :new], k, v)
        self.assertLess(relative_error(out, expected), 1e-6)
        # As a ragged batch: one query of the first sequence, and all new ones of the others.
        counts = [1, *[new] * (batch - 1)]
        pack = lambda x: torch.cat([x[b, :, new - n :] for b, n in enumerate(counts)], dim=1)[None]  # noqa: E731
        packed = {name: pack(given[name]) for name in ("new_k", "new_v")}
        cu_seqlens = torch.tensor([0, *counts]).cumsum(0).int()
        ragged = given | packed | {"cu_seqlens_q": cu_seqlens, "max_q_len": new, "max_kv_len": rows}
        result = attnc.attention("q_idx >= kv_idx", pack(q[:, :, :new]), *pools, **ragged)
        self.assertLess(relative_error(result, pack(out)), 1e-6)
        with self.assertRaisesRegex(attnc.RunError, "max_q_len"):
            attnc.attention("score", pack(q[:, :, :new]), *pools, **ragged | {"max_q_len": 1 << 20})
        with self.assertRaisesRegex(attnc.RunError, "new_v"):
            attnc.attention("score", q[:, :, :new], *pools, **{**given, "new_v": None})
        with self.assertRaisesRegex(attnc.RunError, "kv_lengths"):
            attnc.attention("score", q, k, v, kv_lengths=lengths.long())

    def test_offsets_of_the_option(self):
        """On the CPU as on a GPU, whose kernels are made for them."""
        q, k, v = (x.detach() for x in operands("cpu", requires_grad=False))
        q, rows = q[:, :, :5], k.shape[2]
        attend = lambda **given: attnc.attention("q_idx >= kv_idx", q, k, v, **given)  # noqa: E731
        ints = lambda *numbers: torch.tensor(numbers, dtype=torch.int32)  # noqa: E731
        starts, ends, lengths = ints(*[0] * len(q)), ints(*[rows - 5] * len(q)), ints(*range(rows - len(q), rows))
        mask = create_block_mask(lambda b, h, q, k: q >= k, None, None, 5, rows, device="cpu")
        options = {"offsets": "from_lengths"}
        packed = lambda **given: attnc.attention(  # noqa: E731
            "q_idx >= kv_idx", q[:1], k[:1, :, :5], v[:1, :, :5], cu_seqlens_q=ints(0, 2, 5), **given
        )
        for found, expected in (
            (attend(offsets="none"), attend(q_offsets=starts)),
            (attend(offsets="none", kv_lengths=lengths), attend(q_offsets=starts, kv_lengths=lengths)),
            (attend(offsets="from_lengths"), attend(q_offsets=ends)),
            (attend(offsets="from_lengths", kv_lengths=lengths), attend(kv_lengths=lengths)),
            (attend(offsets="tensor", q_offsets=ends), attend(q_offsets=ends)),
            (packed(offsets="from_lengths"), packed()),
            (packed(offsets="none", cu_seqlens_kv=ints(0, 3, 5)), packed(q_offsets=ints(0, 0), cu_seqlens_kv=ints(0, 3, 5))),
            (flex_attention(q, k, v, block_mask=mask, enable_gqa=True, kernel_options=options), attend(q_offsets=ends)),
        ):  # fmt: skip
            self.assertLess(relative_error(found, expected), 1e-6)

    def test_block_masks(self):
        lengths, heads, longest = [70, 0, 200, 129], 2, 200
        sizes = {"max_q_len": longest, "max_kv_len": longest}
        starts = torch.tensor([0, *lengths]).cumsum(0).int()
        torch.manual_seed(3)
        q, k, v = (torch.randn(1, heads, sum(lengths), 16) for _ in range(3))
        live = lambda b, h, q, k: ((q // 64 + k // 64 + b + h) % 3 == 0) | (k < 3)  # noqa: E731
        mask = create_block_mask(live, len(lengths), heads, longest, longest, device="cpu", BLOCK_SIZE=64)
        self.assertEqual(mask.kv_num_blocks.shape, (4, heads, 4))

        def of_sequences(live):
            parts = []
            for b, length in enumerate(lengths):
                rows = slice(int(starts[b]), int(starts[b]) + length)
                own = lambda _, h, q, k: live(b, h, q, k)  # noqa: E731, B023
                parts.append(by_definition(None, own, *(x[:, :, rows] for x in (q, k, v)))[0] if length else q[:, :, :0])
            return torch.cat(parts, dim=2)

        text = "def mask_mod(b, h, q_idx, kv_idx):\n  return ((q_idx // 64 + kv_idx // 64 + b + h) % 3 == 0) | (kv_idx < 3)"
        expected = of_sequences(live)
        out = attnc.attention(text, q, k, v, cu_seqlens_q=starts, block_mask=mask, **sizes)
        self.assertLess(relative_error(out, expected), 1e-6)
        # The lists count: without those of partial blocks, as those that the longest length cuts, the others are left.
        fields = ("kv_indices", "full_kv_num_blocks", "full_kv_indices", "seq_lengths", "BLOCK_SIZE")
        less = types.SimpleNamespace(
            kv_num_blocks=torch.zeros_like(mask.kv_num_blocks), **{name: getattr(mask, name) for name in fields}
        )
        out = attnc.attention("score", q, k, v, cu_seqlens_q=starts, block_mask=less, **sizes)
        whole = lambda b, h, q, k: ((q // 64 + k // 64 + b + h) % 3 == 0) & (q < 192) & (k < 192)  # noqa: E731
        expected = of_sequences(whole)
        self.assertLess(relative_error(out, expected), 1e-6)
        with self.assertRaisesRegex(attnc.ArgumentError, "without max_q_len or max_kv_len"):
            attnc.attention(text, q, k, v, cu_seqlens_q=starts, block_mask=mask, max_q_len=longest)
        with self.assertRaisesRegex(attnc.RunError, "max_q_len queries"):
            attnc.attention(text, q, k, v, cu_seqlens_q=starts, block_mask=mask, max_q_len=201, max_kv_len=200)
        half = types.SimpleNamespace(kv_num_blocks=mask.kv_num_blocks, **{name: getattr(mask, name) for name in fields})
        half.full_kv_indices = None
        with self.assertRaisesRegex(attnc.RunError, "fullCount and fullIndex"):
            attnc.attention(text, q, k, v, cu_seqlens_q=starts, block_mask=half, **sizes)
        less.kv_num_blocks = less.kv_num_blocks.long()
        with self.assertRaisesRegex(attnc.ArgumentError, r"kv_num_blocks of block_mask is .*give int32 \[4, 2, 4\]"):
            attnc.attention("score", q, k, v, cu_seqlens_q=starts, block_mask=less, **sizes)
        # Of a batch that is not ragged.
        q, k, v = operands("cpu", requires_grad=False)
        live = lambda b, h, q, k: q - k >= 3 * h  # noqa: E731
        mask = create_block_mask(live, None, q.shape[1], q.shape[2], k.shape[2], device="cpu")
        out = attnc.attention("q_idx - kv_idx >= 3 * h", q, k, v, block_mask=mask)
        self.assertLess(relative_error(out, by_definition(None, live, q, k, v)[0]), 1e-6)

    def test_e4m3(self):
        q, k, v = (x.to(torch.float8_e4m3fn) for x in operands("cpu", requires_grad=False))
        try:
            q.__dlpack__()
        except (BufferError, RuntimeError, ValueError):
            self.skipTest("this PyTorch exports no e4m3")
        blocks = -(-k.shape[2] // 128)
        of_q = torch.rand(q.shape[:2]) + 0.5
        of_k, of_v = (torch.rand(*k.shape[:2], blocks) + 0.5 for _ in range(2))
        by_row = lambda scales: scales.repeat_interleave(128, 2)[:, :, : k.shape[2], None]  # noqa: E731
        expected, _ = by_definition(
            None, None, q.float() * of_q[..., None, None], k.float() * by_row(of_k), v.float() * by_row(of_v)
        )
        out = attnc.attention("score", q, k, v, q_scales=of_q, k_scales=of_k, v_scales=of_v)
        self.assertEqual(out.dtype, torch.bfloat16)
        self.assertLess(relative_error(out, expected), 2**-8)
        # Of what kernels do not take, nothing is computed on the CPU either.
        scales, wide = {"k_scales": of_k[..., 0], "v_scales": of_v[..., 0]}, torch.zeros(1, 2, 32, 72).to(q.dtype)
        out_of = lambda dtype: torch.empty(q.shape, dtype=dtype)  # noqa: E731
        for tensors, options, text in (
            ((wide, wide, wide), {}, r"head dim 72 of e4m3 is not supported: .* pad it with zeros to 80"),
            ((q, k, v), {"out": out_of(torch.float32)}, "out is f32: out is bf16 or f16 then"),
            ((q, k, v), {"out": out_of(q.dtype)}, "out is e4m3: out is bf16 or f16 then"),
            ((q.bfloat16(), k, v), {**scales, "q_scales": of_q}, "q_scales is given, expected none, for q is not e4m3"),
            ((q.bfloat16(),) * 3, {"q_scales": of_q}, "q_scales is given, expected none, for q is not e4m3"),
            ((q, k.bfloat16(), v.bfloat16()), {}, "q is e4m3, k and v are not"),
        ):
            with self.subTest(text), self.assertRaisesRegex(attnc.RunError, text):
                attnc.attention("score", *tensors, **options)
        half = attnc.attention("score", q, k, v, out=out_of(torch.float16), **scales)
        self.assertEqual(half.dtype, torch.float16)
        few = attnc.attention("score", q.bfloat16(), k, v, **scales)
        self.assertLess(relative_error(few, half), 2**-7)

    def test_mods(self):
        mod = attnc.Mod.parse(WINDOW, defines={"WINDOW": 12})
        self.assertEqual(
            [(c.name, c.kind, c.dtype, c.extents) for c in mod.captures], [("t", "tensor", "bf16", ("H", "4"))]
        )
        self.assertIn("12.0", mod.ir)
        self.assertEqual(attnc.Mod.parse_ir(mod.ir).hash, mod.hash)

    def test_errors(self):
        with self.assertRaises(attnc.ModError) as caught:
            attnc.Mod.parse("q_idx >= kv", name="causal")
        self.assertIn("causal:1:10", str(caught.exception))
        q, k, v = operands("cpu", requires_grad=False)
        with self.assertRaises(attnc.ArgumentError) as caught:
            attnc.attention("t: f32[H]\ndef score_mod(s, b, h, q, k):\n    return s + t[h]\n", q, k, v)
        self.assertIn("captures `t`", str(caught.exception))
        with self.assertRaises(attnc.RunError):
            attnc.attention("q_idx >= kv_idx", q, k[..., :8], v)
        with self.assertRaises(attnc.ArgumentError):
            attnc.attention("q_idx >= kv_idx", q.tolist(), k, v)
        for name, wrong in (("q", (q[0], k, v)), ("k", (q, k[0], v)), ("v", (q, k, v[0]))):
            with self.assertRaisesRegex(attnc.ArgumentError, rf"{name} has 3 axes: give \[B, H, L, E\]"):
                attnc.attention("score", *wrong)
        with self.assertRaisesRegex(attnc.ArgumentError, "mod is function: give a Mod or its text; attnc.torch"):
            attnc.attention(lambda score, b, h, q, k: score, q, k, v)
        with self.assertRaisesRegex(TypeError, "unexpected keyword argument 'tiles'"):
            attnc.attention("q_idx >= kv_idx", q, k, v, tiles="64x32x4")
        with self.assertRaisesRegex(TypeError, "tile is 64; it must be a text"):
            attnc.attention("q_idx >= kv_idx", q, k, v, tile=64)
        with self.assertRaisesRegex(attnc.ArgumentError, "there is no kernel to be tuned"):
            attnc.tune("q_idx >= kv_idx", q, k, v)

    def test_options_are_those_of_the_library(self):
        values = {str: "64x32x4", float: 0.5, bool: True}
        given = {name: kind[-1] if type(kind) is tuple else values[kind] for name, kind in OPTIONS.items()}
        members = PrepareOptions(**dict(members_of(given)))
        for name, _ in PrepareOptions._fields_:
            self.assertEqual(bool(getattr(members, name)), name not in ("arch", "pins", "pin_count", "backward_later"), name)
        self.assertEqual((members.tile, members.low_rank_error, members.tf32), (b"64x32x4", 0.5, 1))
        self.assertEqual(members_of({"family": "sm80", "decode": "default", "tile": ""}), (("family", 2),))

    def test_needs_no_torch(self):
        code = "import sys, attnc; attnc.Mod.parse('q_idx >= kv_idx'); sys.exit('torch' in sys.modules)"
        path = {"PYTHONPATH": str(needs.ROOT / "tools" / "python"), "PYTHONDONTWRITEBYTECODE": "1"}
        self.assertEqual(subprocess.run([sys.executable, "-c", code], env={**os.environ, **path}).returncode, 0)


if __name__ == "__main__":
    unittest.main()
