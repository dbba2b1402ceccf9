#!/usr/bin/env python3
"""Compares attnc's translation of PyTorch callables with the callables themselves: out, lse and gradients.

  python3 translation_test.py ATTNC [-v ...]

Prints SKIPPED if torch or safetensors are not installed. Needs no GPU: attnc computes with its fp64 reference.
"""

import concurrent.futures
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import needs

needs.modules("attention")
import torch
from attention import by_definition, everywhere, relative_error, run_attnc
from attnc.mod import Mod
from attnc.torch import create_block_mask, flex_attention
from attnc.torch.translation import UntranslatableError, translate
from integers import LENGTH, Expressions, captured, forms
from mods import CASES, Env

ATTNC = sys.argv.pop(1)
# Steps of the mod may fall otherwise where functions differ in the last place; these have none.
TOLERANCE = 2e-6


def functions_of(case, env):
    found = case(env)
    return found if isinstance(found, tuple) else (found, None)


class Job:
    def __init__(self, name, case):
        env = Env()
        self.name, (self.score_mod, self.mask_mod) = name, functions_of(case, env)
        q, k, v, dout = (
            env.normal(env.B, heads, rows, 16) * 2
            for heads, rows in ((env.H, env.Q_LEN), (env.HKV, env.KV_LEN), (env.HKV, env.KV_LEN), (env.H, env.Q_LEN))
        )
        self.tensors = {"q": q, "k": k, "v": v, "dout": dout, "dlse": env.normal(env.B, env.H, env.Q_LEN)}
        self.translation = translate(
            self.score_mod, self.mask_mod, problem=(env.B, env.H, env.HKV, env.Q_LEN, env.KV_LEN)
        )

    def expected(self):
        leaves = {name: self.tensors[name] for name in "qkv"}
        leaves.update({name: x for name, x in self.translation.tensors.items() if x.is_floating_point()})
        for x in leaves.values():
            x.requires_grad_()
        out, lse = by_definition(self.score_mod, self.mask_mod, *(self.tensors[name] for name in "qkv"))
        dlse = torch.where(lse.isfinite(), self.tensors["dlse"].double(), 0)
        grads = torch.autograd.grad(
            [out, lse], list(leaves.values()), [self.tensors["dout"].double(), dlse], allow_unused=True
        )
        names = {name: f"d{name}" for name in "qkv"}
        result = {names.get(name, f"d_{name}"): grad for name, grad in zip(leaves, grads) if grad is not None}
        return {"out": out, "lse": lse, **result}

    def wrong(self):
        """Describes the errors; empty if there are none."""
        try:
            actual = run_attnc(ATTNC, self.translation, self.tensors, "--backward")
        except RuntimeError as error:
            return str(error)
        expected = self.expected()
        missing = [name for name, x in expected.items() if name not in actual and x.any()]
        errors = {name: relative_error(actual[name], x) for name, x in expected.items() if name in actual}
        coarse = {
            f"d_{name}" for name, x in self.translation.tensors.items() if x.dtype in (torch.bfloat16, torch.float16)
        }
        wrong = {name: error for name, error in errors.items() if not error <= (1e-2 if name in coarse else TOLERANCE)}
        return f"errors {wrong}, missing {missing}\n{self.translation.text}" if wrong or missing else ""


class TranslationTest(unittest.TestCase):
    def test_mods_mean_what_their_callables_do(self):
        jobs = []
        for name, case in CASES.items():
            with self.subTest(name):
                jobs.append(Job(name, case))
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            for job, wrong in zip(jobs, pool.map(Job.wrong, jobs)):
                with self.subTest(job.name):
                    self.assertFalse(wrong, wrong)
        print(f"{len(jobs)} mods")


def live(mask_mod, heads):
    """Returns what lives of a mask, as attention on the CPU sees it: bools [1, heads, LENGTH, LENGTH]."""
    q = torch.zeros(1, heads, LENGTH, 8)
    mask = create_block_mask(mask_mod, 1, heads, LENGTH, LENGTH, device="cpu")
    return flex_attention(q, q, torch.eye(LENGTH).expand(1, heads, -1, -1).contiguous(), block_mask=mask) > 0


class IntegerTest(unittest.TestCase):
    """Integers have the widths that they have in PyTorch without a compiler, where positions are int64."""

    def compared(self, text):
        """Compares the mask of an expression, against four numbers that divide its values. Returns False if PyTorch
        refuses it."""
        names = {"torch": torch, **captured()}
        value = eval(f"lambda b, h, q, k: {text}", names)
        try:
            values = everywhere(value, (1, 1, LENGTH, LENGTH)).flatten().long().sort().values
        except RuntimeError:  # a division by 0, a number that does not fit
            return False
        names["edge"] = values[[len(values) * part // 9 for part in (1, 3, 5, 8)]]
        mask_mod = eval(f"lambda b, h, q, k: {text} <= edge[h]", names)
        want = everywhere(mask_mod, (1, 4, LENGTH, LENGTH))
        self.assertTrue(torch.equal(live(mask_mod, 4), want), text)
        return True

    def test_forms_that_leave_32_bits(self):
        for text in forms():
            with self.subTest(text):
                self.assertTrue(self.compared(text))

    def test_random_expressions(self):
        seeds = range(60)
        self.assertGreater(sum(self.compared(Expressions(seed).draw(3)) for seed in seeds), 45)

    def test_numbers_beyond_32_bits_may_vary(self):
        functions = [
            lambda n: lambda b, h, q, k: k <= q + n,
            lambda n: lambda b, h, q, k: q - k + n > 2**33,
            lambda n: lambda b, h, q, k: (n >> k) & 1 != 0,
        ]
        numbers = [5, 2**33, 2**33 - 9, -(10**12), 3, 2**31 - 1, 2**62 + 99, 0x123456789ABCDEF0]
        for function in functions:
            texts = set()
            for number in numbers:
                mask_mod = function(number)
                self.assertTrue(torch.equal(live(mask_mod, 1), everywhere(mask_mod, (1, 1, LENGTH, LENGTH))), number)
                texts.add(translate(None, mask_mod).text)
            self.assertLessEqual(len(texts), 2)  # it compiles twice, whatever follows
        far = torch.tensor(10**12)  # on another device than the operands
        self.assertEqual(translate(None, lambda b, h, q, k: k < far, device="meta").scalars["far_high"], 10**12 >> 32)

    def test_numbers_that_do_not_fit_are_refused_where_pytorch_refuses_them(self):
        i = captured()["i"]
        for mask_mod in (
            lambda b, h, q, k: i[q].clamp(max=10**12) < k,
            lambda b, h, q, k: torch.where(q > k, i[q], 10**12) < k,
        ):
            with self.assertRaisesRegex(UntranslatableError, r"1000000000000 does not fit into torch\.int32: convert"):
                translate(None, mask_mod)

    def test_positions_take_32_bits_where_they_fit(self):
        """What kernels compute has no i64, whatever PyTorch's types."""
        i = captured()["i"]
        for mask_mod in (
            lambda b, h, q, k: (q - k).abs() <= 7,
            lambda b, h, q, k: (q // 8 * 8 == k // 8 * 8) | (q - q % 16 == k),
            lambda b, h, q, k: (q * 64 + k >> 3) & 5 != torch.where(q < k, q, -k).clamp(-9, 9),
            lambda b, h, q, k: i[q - 3] + i[k - 3] < i[0],
        ):
            self.assertNotIn("i64", Mod.parse_ir(translate(None, mask_mod).text).ir)


def neighborhood(width, height, columns, rows):
    """A mod as they are written for images: a window around each pixel, moved inside at the border."""

    def place(index):
        return index // width, index % width

    def mask_mod(b, h, q_idx, kv_idx):
        (q_row, q_column), (kv_row, kv_column) = place(q_idx), place(kv_idx)
        row = q_row.clamp(rows // 2, (height - 1) - rows // 2)
        column = q_column.clamp(columns // 2, (width - 1) - columns // 2)
        return ((row - kv_row).abs() <= rows // 2) & ((column - kv_column).abs() <= columns // 2)

    return mask_mod


def windows(area, width, size):
    """Of a video, by remainders of remainders."""

    def mask_mod(b, h, q_idx, kv_idx):
        same_frame = q_idx // area == kv_idx // area
        same_rows = q_idx % area // width // size == kv_idx % area // width // size
        return same_frame & same_rows & (q_idx % width // size == kv_idx % width // size)

    return mask_mod


class GridTest(unittest.TestCase):
    def explained(self, mask_mod, length):
        translation = translate(None, mask_mod, problem=(1, 2, 2, length, length))
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "mod.ir")
            path.write_text(translation.text, encoding="utf-8")
            command = [ATTNC, "explain", path, "--arch", "sm_90a", "--head-dim", "64", "--shape", f"1,2,2,{length},{length}"]
            return subprocess.run(list(map(str, command)), capture_output=True, text=True, check=True).stdout

    def test_images_and_videos_have_kernels_by_boxes(self):
        for mask_mod, length in ((neighborhood(24, 16, 5, 3), 384), (windows(96, 12, 4), 960)):
            text = self.explained(mask_mod, length)
            self.assertIn("family grid for sm_90a", text)
            self.assertIn("boxes of keys", text)

    def test_numbers_of_grids_stay_constants(self):
        """Kernels of boxes are planned by them; a second grid got them at launch, and computed four times as much."""
        widths = []
        for sizes in ((24, 16, 5, 3), (32, 16, 5, 3), (16, 24, 7, 3), (24, 16, 5, 3)):
            translation = translate(None, neighborhood(*sizes))
            self.assertEqual(translation.scalars, {})
            widths += re.findall(r"mod i64 %\d+, (\d+)", translation.text)
        self.assertEqual(widths, "24 24 32 32 16 16 24 24".split())
        biased = lambda n: lambda score, b, h, q, k: torch.where(q % n < k % n, score + n, -float("inf"))  # noqa: E731
        for n, scalars in ((8, {}), (9, {"n2": 9.0})):  # masks of a score_mod; what it adds is no number of the grid
            self.assertEqual(translate(biased(n)).scalars, scalars)

    def test_other_numbers_beside_grids_are_given_at_launch(self):
        def windowed(width, window, shift):
            in_row = lambda q, k: (q % width - k % width).abs() < 4  # noqa: E731
            return lambda b, h, q, k: in_row(q, k) & (q - k < window) & (h < shift)

        found = [translate(None, windowed(16, *numbers)) for numbers in ((64, 2), (65, 3), (66, 5), (67, 1))]
        self.assertEqual(len({x.text for x in found[1:]}), 1)
        self.assertEqual([sorted(x.scalars.values()) for x in found], [[], [3, 65], [5, 66], [1, 67]])
        for one in (
            lambda n: lambda b, h, q, k: (q // n == k // n) & (q >= k),  # quotients alone are no grid
            lambda n: lambda b, h, q, k: (q - k) % n == 0,
            lambda n: lambda b, h, q, k: k % n == n - 1,
        ):
            self.assertEqual(len({translate(None, one(n)).text for n in range(5, 12)}), 2)
        columns = lambda n: lambda score, b, h, q, k: score * (q % n - k % n)  # noqa: E731
        self.assertEqual(len({translate(columns(n)).text for n in range(5, 12)}), 2)  # which masks nothing

    def test_grids_beyond_the_first_are_given_at_launch(self):
        columns = lambda n, far: lambda b, h, q, k: (q % n == k % n) & (q // n >= k // n - far)  # noqa: E731
        numbers = [(n, 3) for n in range(2, 50)] + [(8, 2**40), (7, 3), (49, 2**40)]
        found = [translate(None, columns(*one)) for one in numbers]
        self.assertEqual(len({x.text for x in found}), 34)  # the first 32, and those of all others: short and wide
        self.assertEqual(found[-2].scalars, {})
        for (n, far), translation in zip(numbers[45:], found[45:]):
            want = everywhere(columns(n, far), (1, 1, LENGTH, LENGTH))
            self.assertTrue(torch.equal(live(columns(n, far), 1), want), (n, far))

    def test_lengths_that_are_no_images_go_by_lists(self):
        text = self.explained(neighborhood(24, 16, 5, 3), 390)
        self.assertIn("family sm90 for sm_90a", text)
        self.assertIn("Q_LEN is 390, no multiple of 24, by which the mod takes positions apart", text)


if __name__ == "__main__":
    unittest.main()
