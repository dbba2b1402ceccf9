"""Warnings about mods that are functions: a finite number where -inf would mask a score.

In: the program of a score_mod. Out: ModWarning, as the library gives it for texts; it gives none for IR, which has no
text. The rules are those of FiniteMasks in src/analysis/suspicions.cpp.
"""

import dis
import linecache
import math
import re
import types
import warnings

from ._calls import stack_level
from ._diagnostics import WORDS, code_of, rendered, unwrapped
from ._ir_text import round_f32
from .errors import ModWarning

_LARGE = 1e4  # larger finite numbers stand for an infinity
_told = set()


def warn_of(function, score, *others):
    """Warns once of each finite mask in the score that a score_mod returns. `others`: folders that are not the caller's."""
    for number in _finite_masks(score):
        message, hint = WORDS["finite-mask"]
        where, line = _place_of(function, number)
        start = len(line.encode()) - len(line.lstrip().encode())
        where = f"{where}:{start + 1}" if line else where
        text = rendered(where, "warning", f"{message.format(_spelled(number))} [finite-mask]", hint, line, start)
        if text not in _told:
            _told.add(text)
            warnings.warn(ModWarning("finite-mask", text), stacklevel=stack_level(*others))


def _finite_masks(score):
    """Follows the score to the places where -inf would mask it."""
    left, seen, found = [(score, False)], set(), []

    def report(value, is_negated):
        number = value.attr[1] if value.is_const and value.type == "f32" else math.inf
        if math.isfinite(number) and (-number if is_negated else number) <= -_LARGE:
            found.append(number)

    while left:
        value, is_negated = one = left.pop()
        if one in seen:
            continue
        seen.add(one)
        operands = value.operands
        if value.op == "select":
            for operand in operands[1:]:
                report(operand, is_negated)
                left.append((operand, is_negated))
        elif value.op in ("add", "stop_gradient") or value.op == ("min" if is_negated else "max"):
            left += [(operand, is_negated) for operand in operands]
        elif value.op == "sub":
            left += [(operands[0], is_negated), (operands[1], not is_negated)]
        elif value.op == "neg":
            left.append((operands[0], not is_negated))
        elif value.op == "mul":
            for operand, other in (operands, operands[::-1]):
                if _is_flag(other):
                    report(operand, is_negated)
    return dict.fromkeys(found)


def _is_flag(value):
    """Whether a number is 0 or 1: a cast bool, or 1 minus one."""
    if value.op == "cast":
        return value.operands[0].type == "bool"
    return value.op == "sub" and value.operands[0].is_const and value.operands[0].attr[1] == 1 and _is_flag(value.operands[1])


def _spelled(number):
    """Returns an f32 in the fewest digits that tell it from others."""
    shortest = next(x for x in (float(f"{number:.{digits}g}") for digits in range(1, 18)) if round_f32(x) == number)
    return repr(shortest).removesuffix(".0")


def _place_of(function, number):
    """Returns ("file:line", the line) of a number in a function, or else of the function."""
    function, code = unwrapped(function), code_of(function)
    place, left = (code.co_filename, code.co_firstlineno) if code else ("", 0), [code] if code else []
    if hasattr(function, "graph"):  # of torch.compile; its nodes know the code that they come from
        found = [x.stack_trace for x in function.graph.nodes if x.stack_trace and any(_is(y, number) for y in x.args)]
        places, left = re.findall(r'^ *File "(.*)", line (\d+)', "".join(found[:1]), re.M), []
        place = (places[-1][0], int(places[-1][1])) if places else ("", 0)
    while left:
        inner = left.pop()
        left += [x for x in inner.co_consts if isinstance(x, types.CodeType)]
        for line, value in _loaded(inner):
            if _is(value, number):
                place, left = (code.co_filename, line), []
    return (f"{place[0]}:{place[1]}", linecache.getline(*place).rstrip()) if place[0] else ("score_mod", "")


def _is(value, number):
    return type(value) in (int, float) and round_f32(abs(value)) == abs(number)


def _loaded(code):
    """Yields pairs of a line and what one of its instructions loads."""
    lines, line = dict(dis.findlinestarts(code)), code.co_firstlineno
    for instruction in dis.get_instructions(code):
        line = lines.get(instruction.offset) or line
        yield line, instruction.argval
