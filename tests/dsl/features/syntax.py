'''Spacing, joined lines,
   docstrings, semicolons.'''
# A comment.
from __future__ import annotations

from typing import Callable, Optional

import torch, math

A = 1; B2 = 2  # two in a line
LONG: int = (
    3
    + 4  # a comment inside
)
if __name__ == "__main__":
    print("never run")


def helper(x: Optional[int] = None,
           f: Callable = None,
           /, *, k: float = 1.5,
           ):
    """A docstring."""
    assert k > 0, "positive"
    if x is None: return k
    elif x == 3 and not f is None: return 7.0
    else:
        pass
    raise ValueError("no")


def score_mod(
    score,
    b, h,
	q_idx, kv_idx,
):
    local: torch.Tensor = score * A \
        + B2
    z = y = local
    if (
        LONG == 7
        and A < B2 <= 2
    ): z = z + helper(); y = y * 2
    a, (c, [d, e]) = 1, (2, [3, 4])
    a, c = c, a
    x = .5 + 5. + 1e2 + 1_0.0_1 + 0xFf + -2 ** 2 + 2 ** -1 + - - 3
    return z + y + a * 10 + c + d + e + x + (1 if A else 2) + (lambda: 3)() + (lambda v, w=2: v * w)(4)
