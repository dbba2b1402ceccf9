"""Warnings about mods that are functions.

In: a mod and its program. Out: ModWarning, as the library gives it for texts; it gives none for IR, which has no text.
The rules are those of FiniteMasks in src/analysis/suspicions.cpp, and of warnOfOrder and warnOfMixedBits in dsl/tracing.
Whether a mask is the same for every score is what the library's passes find.
"""

import dis
import functools
import inspect
import linecache
import math
import re
import sysconfig
import types
import warnings

from ._calls import stack_level
from ._diagnostics import Source, code_of, mixed_bits, rendered, unwrapped
from ._ir_text import parameters_of, round_f32
from ._spec import WORDS
from .errors import ModWarning
from .mod import Mod

_LARGE = 1e4  # larger finite numbers stand for an infinity
_told = set()


def warn_of(function, what, value, nodes, *others):
    """Warns once of each suspicion about a mod, `what`, that returns `value`. `nodes` are those of its program."""
    _warn_of_order(function, parameters_of(what), others)
    if any(map(_mixes, nodes)) and (source := _source_of(function, "comparison-precedence")):
        for node, *holes in mixed_bits(source):
            _warn_at(source, node, "comparison-precedence", holes, others)
    for number in _finite_masks(value) if what == "score_mod" else ():
        _warn_of_line(*_place_of(function, number), "finite-mask", [_spelled(number)], others)


def warn_of_mask(function, text, *others):
    """Warns once of a mask_mod that is the same for every score. `text` is its program, as IR."""
    id = _always(text)
    if id and (source := _source_of(function, id)):
        number = source.returned().lineno
        line = linecache.getline(source.name, number).rstrip()
        _warn_of_line(f"{source.name}:{number}", line, id, [], others)


@functools.lru_cache(maxsize=1024)
def _always(text):
    """Returns the id of the warning about a mask. None: it differs between scores, or its author wrote a literal."""
    written, found = (
        re.search(r"^output mask\(.*\) -> (true|false)$", program, re.M) for program in (text, Mod.parse_ir(text).ir)
    )
    return None if written or not found else f"mask-always-{found[1]}"


def _warn_of_order(function, usual, others):
    """Warns of usual names of parameters in another order."""
    if not inspect.isfunction(function):
        return
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    moved = [place for place, (name, other) in enumerate(zip(names, usual)) if name != other and name in usual]
    if moved and (source := _source_of(function, "parameter-order")):
        holes = names[moved[0]], usual[moved[0]], function.__name__, ", ".join(usual)
        parameters = source.parts[0].args
        place = [*parameters.posonlyargs, *parameters.args][moved[0]]
        _warn_at(source, place, "parameter-order", holes, others)


def _source_of(function, id):
    """Returns the source of a function, once for a kind of warning: JAX traces a mod at each call. Functions of installed
    packages are not the caller's to mend: Transformers has the mask `q_idx >= 0`."""
    code = code_of(function)
    if (code, id) in _told:
        return None
    _told.add((code, id))
    return Source.of_function(function, sysconfig.get_path("purelib"))


def _mixes(value):
    """Whether an operation on bits has a bool and an int."""
    is_cast = any(x.op == "cast" and x.operands[0].type == "bool" for x in value.operands)
    return value.op in ("and", "or", "xor") and value.type != "bool" and is_cast


def _warn_at(source, node, id, holes, others):
    message, hint = (words.format(*holes) for words in WORDS[id])
    _warn(id, source.rendered(node, f"{message} [{id}]", hint, "warning"), others)


def _warn_of_line(where, line, id, holes, others):
    message, hint = WORDS[id]
    start = len(line.encode()) - len(line.lstrip().encode())
    where = f"{where}:{start + 1}" if line else where
    _warn(id, rendered(where, "warning", f"{message.format(*holes)} [{id}]", hint, line, start), others)


def _warn(id, text, others):
    if text not in _told:
        _told.add(text)
        warnings.warn(ModWarning(id, text), stacklevel=stack_level(*others))


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
