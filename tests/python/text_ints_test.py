#!/usr/bin/env python3
"""Compares the integers of the text language with those of PyTorch: CPython runs the same functions on 0-d tensors.

A mask whose head h asks for bit h of an expression tells the whole int64. Prints SKIPPED if torch is not installed.
TEXT_INTS_SEEDS: how many random texts of four expressions each (default: 24).
"""

import os
import random
import unittest

import needs

needs.modules("torch")
import torch
import attnc

ROWS = 8
DTYPES = {"u8": torch.uint8, "i8": torch.int8, "i16": torch.int16, "i32": torch.int32, "i64": torch.int64}
NUMBERS = {"n": 3, "far": 2**31 - 1, "below": -(2**31)}
HEAD = "".join(f"{name}s: {name}[{ROWS}]\n" for name in DTYPES) + "".join(f"{name}: int\n" for name in NUMBERS)


def captures(seed):
    """Returns tensors whose elements are small, or near the ends of their dtype."""
    draw, made = random.Random(seed), {}
    for name, dtype in DTYPES.items():
        ends = torch.iinfo(dtype)
        near = [ends.min, ends.min + 1, ends.max, ends.max - 1, ends.max // 2, ends.max // 3]
        data = [draw.choice(near) if draw.random() < 0.5 else draw.randint(max(ends.min, -9), 9) for _ in range(ROWS)]
        made[name + "s"] = torch.tensor(data, dtype=dtype)
    return made


def live(text, tensors, rows=ROWS, heads=64):
    """Returns the mask [heads, rows, rows] of a text: the weights of a softmax over equal scores."""
    zeros = torch.zeros(1, heads, rows, 16)
    keys, values = torch.zeros(1, 1, rows, 16), torch.eye(rows).reshape(1, 1, rows, rows)
    return attnc.attention(text, zeros, keys, values, captures={**tensors, **NUMBERS})[0] > 0


def function_of(body, tensors):
    names = {"torch": torch, **tensors, **NUMBERS}
    exec(f"def value(q_idx, kv_idx):\n    return {body}\n", names)
    return names["value"]


def by_torch(body, tensors):
    """Returns the int64 of each pair of positions."""
    value = function_of(body, tensors)
    return torch.stack([
        torch.stack([value(torch.tensor(q), torch.tensor(k)).to(torch.int64) for k in range(ROWS)]) for q in range(ROWS)
    ])  # fmt: skip


def by_text(body, tensors):
    mask = f"def mask_mod(b, h, q_idx, kv_idx):\n    x = {body}\n    return ((x.to(torch.int64) >> h) & 1) != 0\n"
    bits = live(HEAD + mask, tensors).to(torch.int64)
    return (bits << torch.arange(64)[:, None, None]).sum(0)


class Expressions:
    def __init__(self, seed):
        self.draw = random.Random(seed)

    def tensor(self, depth):
        draw = self.draw
        if depth == 0:
            index = draw.choice(["q_idx", "kv_idx"])
            return draw.choice([f"{name}s[{index}]" for name in DTYPES] + [index])
        x, y, c = self.tensor(depth - 1), self.any(depth - 1), self.condition(depth - 1)
        z, small, dtype = self.tensor(depth - 1), draw.randint(0, 100), draw.choice(list(DTYPES.values()))
        return draw.choice([
            f"({x} {draw.choice(['+', '-', '*', '&', '|', '^'])} {y})", f"({y} {draw.choice(['+', '-', '*'])} {x})",
            f"({x} // (abs({y}) | 1))", f"({x} % (abs({y}) | 1))", f"({y} % (abs({x}) | 1))", f"(-{x})", f"(~{x})",
            f"abs({x})", f"({x} << {draw.randint(0, 70)})", f"({x} >> {draw.randint(0, 70)})", f"({x} << {z})",
            f"({x} >> {z})", f"(1 << {x})", f"torch.where({c}, {x}, {z})", f"torch.where({c}, {x}, {small})",
            f"torch.where({c}, {small}, 2)", f"torch.minimum({x}, {z})", f"torch.maximum({x}, {z})",
            f"torch.clamp({x}, {small // 9}, {small})", f"{x}.to({dtype})", f"({x} * {c})", f"({c} + {small})",
            f"({c}).sum()", f"{draw.choice(list(DTYPES))}s[:5].sum()", f"{draw.choice(list(DTYPES))}s.amax()",
            f"torch.sign({x})", f"{x}.masked_fill({c}, {small})", f"{x}.masked_fill({c}, {x})", f"({x} ** {draw.randint(0, 5)})",
            f"({x} ** {z})", f"(2 ** {x})", f"torch.fmod({x}, abs({z}) | 1)", f"torch.relu({x})",
            f"torch.div({x}, abs({z}) | 1, rounding_mode='trunc')", f"torch.square({x})", f"{x}.type_as({z})",
            f"torch.prod({draw.choice(list(DTYPES))}s[:3])", f"torch.dot(u8s, {draw.choice(['u8s', 'u8s'])})",
            f"torch.tensor([{small}, {small * 300}, -1])[{index_of(z)}]", f"(torch.tensor({small * 5}) + {x})",
            f"torch.tensor([1, {small}], dtype={dtype})[q_idx % 2]" if small < 100 else x, f"sum({draw.choice(list(DTYPES))}s[:4])",
        ])  # fmt: skip

    def any(self, depth):
        number = self.draw.choice(["n", "far", "below", "7", "-3", "300", "40000", "2147483647", "1000000000000", "H0"])
        return self.tensor(depth) if number == "H0" or self.draw.random() < 0.5 else number

    def condition(self, depth):
        x, y = self.tensor(max(depth - 1, 0)), self.any(max(depth - 1, 0))
        return f"({x} {self.draw.choice(['<', '<=', '>', '>=', '==', '!='])} {y})"


def index_of(x):
    return f"({x} & 1).to(torch.int64)"


class Ints(unittest.TestCase):
    def same(self, body, tensors, meaning=None):
        with self.subTest(body):
            expected = by_torch(meaning or body, tensors)
            found = by_text(body, tensors)
            if not torch.equal(expected, found):
                q, k = (expected != found).nonzero()[0].tolist()
                at = {name: (row[q].item(), row[k].item()) for name, row in tensors.items()}
                self.fail(f"{body}: {found[q, k]}, torch {expected[q, k]} at q {q}, kv {k} of {at}")

    def test_differences_of_u8_wrap(self):
        ids = torch.arange(8, dtype=torch.uint8)
        text = "ids: u8[KV_LEN]\ndef mask_mod(b, h, q_idx, kv_idx):\n    return (ids[q_idx] - ids[kv_idx]) <= 3\n"
        zeros, eye = torch.zeros(1, 1, 8, 16), torch.eye(8).reshape(1, 1, 8, 8)
        found = attnc.attention(text, zeros, zeros, eye, captures={"ids": ids})[0, 0] > 0
        self.assertEqual(found.sum().item(), 26)
        self.assertTrue(torch.equal(found, ids[:, None] - ids <= 3))

    def test_positions_and_numbers_have_64_bits(self):
        tensors = captures(1)
        for body in (
            "q_idx + 2147483647", "q_idx * 10**10", "(q_idx - kv_idx) * 10**12 // 3", "q_idx + far", "q_idx - below",
            "far * n + q_idx", "torch.where(q_idx > 3, q_idx, 10**12)", "torch.clamp(q_idx + 10**12, max=10**12 + 3)",
            "(q_idx - 5) & 0xffffffff", "(q_idx << 40) >> kv_idx", "1 << (q_idx * 9)", "q_idx ** 25", "abs(below - q_idx)",
            "(q_idx + far) % 10**12", "q_idx // 10**12", "i32s[q_idx] + q_idx", "-(q_idx + below)", "i32s[q_idx] + 2**31",
            "i32s.sum() * 2 + q_idx", "10**12 - q_idx", "(q_idx + 1) * far * far", "torch.arange(8)[q_idx] * 10**10",
        ):  # fmt: skip
            self.same(body, tensors)

    def test_searches_see_whole_numbers(self):
        tensors = captures(2)
        tensors["i64s"] = torch.tensor([-(2**40), -1, 0, 5, 5, 2**31, 2**31 + 5, 2**40])
        tensors["i32s"] = torch.tensor([-(2**31), -7, 0, 5, 5, 9, 100, 2**31 - 1], dtype=torch.int32)
        for body in (
            "torch.bucketize({x}, {t})", "torch.bucketize({x}, {t}, right=True)", "torch.searchsorted({t}, {x})",
            "torch.searchsorted({t}, {x}, side='right')", "torch.searchsorted({t}, {x}, right=True)",
            "torch.isin({x}, {t})",
        ):  # fmt: skip
            for x in ("i64s[q_idx]", "i64s[q_idx] + kv_idx", "i32s[kv_idx]", "u8s[q_idx]", "i8s[q_idx]", "q_idx - 3"):
                for t in ("i64s", "i32s", "torch.tensor([-5, 3, 5, 261, 2**31, 2**33])"):
                    # PyTorch converts a 0-d x to the dtype of the boundaries, but not under FlexAttention's vmap.
                    meaning = body if "isin" in body else body.replace("{x}", "({x}).long()").replace("{t}", "{t}.long()")
                    self.same(body.format(x=x, t=t), tensors, meaning.format(x=x, t=t))

    def test_numbers_take_the_dtype_of_narrower_arrays(self):
        tensors = captures(3)
        tensors["i64s"] = torch.tensor([-131068, 65536, 4, -65536, 200, 300, 2**40 + 3, 255])
        for body in (
            "torch.isin(i64s[q_idx], i16s)", "torch.isin(i64s[q_idx], u8s, invert=True)", "torch.isin(i64s[q_idx], i8s)",
            "torch.isin(i64s[q_idx], torch.tensor([0, 4, 1, 3, 5, 6, 7, 8, 9, -1], dtype=torch.int16))",
            "torch.isin(i64s, i16s).sum()", "torch.bucketize(i64s, torch.tensor([3, 200, 65536]))[q_idx]", "torch.maximum(i64s[q_idx], i16s).sum()", "torch.fmod(i64s[q_idx], u8s | 1).sum()",
            "torch.add(u8s, i64s[q_idx]).amax()", "(u8s + i64s[q_idx]).amax()", "torch.bitwise_or(i8s, i64s[q_idx]).amin()",
        ):  # fmt: skip
            self.same(body, tensors)

    def test_random_expressions(self):
        skipped = tried = 0
        for seed in range(int(os.environ.get("TEXT_INTS_SEEDS", "24"))):
            expressions, tensors = Expressions(seed), captures(seed)
            for i in range(4):
                body = expressions.tensor(1 + i)
                tried += 1
                try:
                    by_torch(body, tensors)
                except (RuntimeError, OverflowError, AttributeError, TypeError, ValueError):
                    skipped += 1  # numbers that torch refuses, and sums of two bools
                    continue
                self.same(body, tensors)
        self.assertLess(skipped, tried // 2)


if __name__ == "__main__":
    unittest.main()
