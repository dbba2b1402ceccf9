"""What acts behind the softmax: a prob_mod, and dropout, which is one.

A prob_mod goes where the score_mod goes, as one function with two results, so that whatever traces, compares or keeps
functions of an attention knows two: a score_mod and a mask_mod.
"""

import functools
import numbers
import re

from ._diagnostics import check_mod
from .names import random


def joined(score_mod, prob_mod):
    """Returns the function that goes where a score_mod goes, of a score_mod and a prob_mod, either of which may be None."""
    if prob_mod is None:
        return score_mod
    check_mod("score_mod", score_mod)
    check_mod("prob_mod", prob_mod)

    def both(score, b, h, q_idx, kv_idx):
        changed = score if score_mod is None else score_mod(score, b, h, q_idx, kv_idx)
        return changed, prob_mod(score, b, h, q_idx, kv_idx)

    return both


_CODE_OF_BOTH = joined(None, random).__code__


def parts(mod):
    """Returns the score_mod and the prob_mod, or None, of what joined() returned."""
    if getattr(mod, "__code__", None) is not _CODE_OF_BOTH:
        return mod, None
    held = dict(zip(_CODE_OF_BOTH.co_freevars, mod.__closure__))
    return held["score_mod"].cell_contents, held["prob_mod"].cell_contents


def check_dropout(dropout_p):
    """Raises ValueError unless it is a share of weights that can be dropped."""
    if not isinstance(dropout_p, numbers.Real) or not 0 <= dropout_p < 1:
        raise ValueError(f"dropout_p is {dropout_p!r}: give the share of weights to drop, a number in [0, 1)")


def rate_of(dropout_p):
    """Returns the share of weights that is dropped: the multiple of 1/256 next to `dropout_p` if that is within 2 % of it, and
    of what it leaves; else `dropout_p`. Such rates need a third of the random bits, and FlashAttention's are multiples as well."""
    near = round(256 * dropout_p) / 256
    return near if abs(near - dropout_p) <= min(dropout_p, 1 - dropout_p) / 50 else dropout_p


def dropped(prob_mod, dropout_p, seed, where):
    """Returns a prob_mod, which may be None, with dropout behind it: dsl/mods/dropout.py as a function. `where` chooses
    between values, as torch.where does. `seed` is an integer of 0 dims."""
    rate = rate_of(dropout_p)

    def dropout(prob, b, h, q_idx, kv_idx):
        if prob_mod is not None:
            prob = prob_mod(prob, b, h, q_idx, kv_idx)
        return where(random(seed, b, h, q_idx, kv_idx) < rate, 0.0, prob / (1 - rate))

    return dropout


@functools.lru_cache(maxsize=1024)
def read_by_prob(text):
    """Returns the names of the tensors that the prob_mod of IR text reads."""
    lines, found = dict(line.split(" = ", 1) for line in text.splitlines() if line.startswith("%")), set()
    values = re.findall(r"^output prob\(.*-> (%\w+)", text, re.MULTILINE)
    for value in values:
        line = lines.pop(value, "")
        found.update(re.findall(r"^load \w+ (\w+)", line))
        values.extend(re.findall(r"%\w+", line))
    return found
