"""Integer expressions of masks, for comparison with PyTorch: forms that leave 32 bits, and random ones.

An expression is Python text over the positions `h`, `q` and `k` and the captured tensors of `captured()`.
"""

import random

import torch

LENGTH = 48  # of the captured tensors, and of the rows and columns of masks
NUMBERS = (
    10**12, -(10**12), 10**10, 2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**32 - 1, 2**32, 2**33 + 5, 2**40, 2**62,
    2**63 - 1, -(2**63), 0, 1, -1, 3, 5, 7, 64, 100,
)  # fmt: skip
DIVISORS = [number for number in NUMBERS if number not in (0, 1, -1)]  # PyTorch traps at -2**63 // -1
# Each is compared with random numbers that divide its values.
FORMS = """
q + 10**12; 10**12 - q; q * 10**10; q // 10**12; (q - k) // 10**12; q % 10**12; (q - k) % 10**12
(q - k) & 0xffffffff
torch.where(q > 5, q, 10**12); (q - k).clamp(max=10**12); (q - k).clamp(-10**12, 2); q + (2**31 - 1); k * 2**28 * q
(q - k) * 2**62 * 8; -(q - 2**31 - 20); (q - 2**31).abs(); ~(q + 2**31 - 9); (q - k) ^ (2**40 - 1); (q + 1) ** 9
2 ** (k + 20); (q - 20) ** (k - 20); (k % 3 - 1) ** (q - 20); 1 << k; 5 << (q - k); q << (k + 20); (q - k) >> 40
w[k] >> q; (w[q] >> k) & 1; (q - k) >> (q - 4); -2**40 >> k; w[q]; w[q] - w[k]; w[q] + k; w[q] // (k + 1); w[q] % (k + 1)
torch.minimum(w[q], k); torch.fmod(w[q], 1000 + k); torch.div(w[q], 1000 + k, rounding_mode="trunc"); w[q].int() + k
w[q].to(torch.int16); w[q].to(torch.uint8) + q; n[(q - 9) % 48]; n[(w[q] >> 62) + k % 9]; n[w[q] % 48]; i[q] + i[k]
i[q] + 2**31 - 1; i[q] * 10**12; i[q] - q; i[q].abs() + 10**12; -i[q]; i[q].long() + 2**31; i[q] // 10**12; i[q] << 3
u[q] - u[k]; u[q] + 300; u[q] << 4; 300 - u[q]; 10**12 >> u[q]; s[q] * s[k]; s[q] + 70000; c[q] - c[k]; c[q] * u[k]
s[q] - u[k]; c[q] << 20; c[q] >> 20; u[q] // 300; torch.sign(w[q] - w[k]); (q > k) + w[q]; (n[0] + 2**31 - 1 + q)
torch.arange(48)[q] * 2**30; torch.tensor([10**12, 3, -2**40])[k % 3] + q; torch.stack([q, k]).sum() * 2**30
(torch.arange(20) * 2**30 + q).sum(); (w.view(2, 24)[q % 2] >> 3).amax() - k
(q * 1e12).long(); (q.float() * 2**31).long()
torch.isin(w[q], s[:9]) + 0; torch.isin(w[q], c[:12]) + 0; (w[q] == c[:9]).sum(); (w[q] < s[:9]).sum(); (s[:9] >= w[q]).sum()
torch.maximum(w[q], s[:9]).sum(); (w[q] // (s[:9] | 1)).sum(); (w[q] % (u[:9] | 1)).sum(); torch.fmod(w[q], c[:9] | 1).sum()
"""


def forms():
    return [form.strip() for line in FORMS.strip().splitlines() for form in line.split(";")]


def captured():
    """Returns tensors of all widths: `w` i64 of all sizes, `n` small i64, `i` i32, `s` i16, `c` i8, `u` u8."""
    generator = torch.Generator("cpu").manual_seed(3)
    draw = lambda low, high: torch.randint(low, high, (LENGTH,), generator=generator)  # noqa: E731
    return {
        "w": draw(-(2**63), 2**63 - 1) >> draw(0, 63), "n": draw(-9, 60),
        "i": (draw(-(2**31), 2**31) >> draw(0, 31)).int(), "s": draw(-(2**15), 2**15).short(), "c": draw(-128, 128).to(torch.int8),
        "u": draw(0, 256).to(torch.uint8),
    }  # fmt: skip


class Expressions:
    """Draws expressions; the same for the same seed."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def number(self):
        wide = self.random.randint(-(2**63), 2**63 - 1) >> self.random.randrange(63)
        return f"({self.random.choice((wide, *NUMBERS, *NUMBERS))})"

    def divisor(self):
        return self.random.choice((f"({self.random.choice(DIVISORS)})", "(u[k] | 1)", f"(({self.leaf()} & 1023) + 2)"))

    def leaf(self):
        return self.random.choice(("q", "q", "k", "k", f"{self.random.choice('wnisuc')}[{self.random.choice('qk')}]"))

    def draw(self, depth):
        """Returns an expression of this depth, or less."""
        if depth <= 0:
            return self.leaf()
        x, y = (self.draw(depth - 1 - self.random.randrange(2)) for _ in range(2))
        choice = self.random.choice
        mixed, divisor, number = choice((y, self.number())), self.divisor(), self.number()
        low, high = sorted(choice(NUMBERS) for _ in range(2))
        count, shift, order = choice((y, self.random.randrange(70))), choice(("<<", ">>")), choice(("<", "<=", "==", "!="))
        dtype = choice(("int64", "int32", "int16", "int8", "uint8"))
        return choice((
            f"({x} {choice('+-*')} {mixed})", f"({number} {choice('+-*')} {x})", f"({x} {choice('&|^')} {mixed})",
            f"({x} // {divisor})", f"({x} % {divisor})", f"({x} {shift} {count})", f"({number} {shift} {x})",
            f"torch.where({x} {order} {choice((y, number))}, {y}, {mixed})", f"{x}.clamp({low}, {high})",
            f"{x}.clamp(max={high})", f"{x}.clamp(min={low})", f"{x}.abs()", f"(-{x})", f"(~{x})", f"{x}.to(torch.{dtype})",
            f"torch.{choice(('minimum', 'maximum'))}({x}, {y})", f"({x} ** {self.random.randrange(5)})",
            f"(2 ** ({x} % 70))", f"n[({x} % 48).long()]", f"n[({x} & 31).long()]", f"torch.fmod({x}, {divisor})",
            f"torch.div({x}, {divisor}, rounding_mode='trunc')",
        ))  # fmt: skip
