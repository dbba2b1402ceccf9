"""Calls like an earlier one: what flex_attention() decided then is used again if nothing that it depends on has changed.

Most calls of a model differ from an earlier one only in addresses. Whether that is so is asked in few steps: PyTorch
compares operands and captured tensors at once, and plain mods are compared part by part. A mod is plain if it is a
function whose defaults, cells and globals hold numbers, tensors, plain functions, and modules that are assumed not to change. Other
mods are looked up by guards.py at each call, and so are block masks with lists of their own.
"""

import dataclasses
import math
import types

import torch

from ..prob_mods import parts
from .block_mask import BlockMask
from .guards import VALUES, is_stable, names_of
from .kernels import ALIGNMENT
from .tracing import is_watched

_MOST_KEPT, _MOST_OF_A_KEY, _MOST_MISSED, _DEEPEST = 1024, 8, 256, 4
_TENSOR, _MISSING = object(), object()


class _NotPlain(Exception):
    pass


def _is_value(kind):
    return kind is int or kind is float or kind in VALUES


class _Plain:
    """A plain function: its code, and what its defaults, cells and globals hold: values, other _Plain, or _TENSOR."""

    __slots__ = ("code", "scope", "names", "held")

    def __init__(self, function, tensors, depth=0):
        """Appends the tensors that the function holds to `tensors`. Raises _NotPlain."""
        if type(function) is not types.FunctionType or depth > _DEEPEST:
            raise _NotPlain
        if function.__kwdefaults__ or function.__dict__:
            raise _NotPlain
        self.code, self.scope, self.names = function.__code__, function.__globals__, ()
        if not is_stable(self.scope.get("__name__", "")):
            names = names_of(self.code)
            if names.is_opaque or not all(map(is_stable, names.modules)):
                raise _NotPlain
            self.names = names.globals
        self.held = [self._expected(item, tensors, depth) for item in self._items(function)]

    def _items(self, function):
        """Returns what a function holds. A global that is missing is a name of Python's own."""
        items = [*function.__defaults__] if function.__defaults__ else []
        if function.__closure__:
            items += [cell.cell_contents for cell in function.__closure__]
        for name in self.names:
            items.append(self.scope.get(name, _MISSING))
        return items

    @staticmethod
    def _expected(item, tensors, depth):
        kind = type(item)
        if isinstance(item, torch.Tensor):
            tensors.append(item)
            return _TENSOR
        if kind is types.FunctionType:
            return _Plain(item, tensors, depth + 1)
        is_known = kind is types.BuiltinFunctionType or kind is types.ModuleType and is_stable(item.__name__)
        if is_known or _is_value(kind) or item is _MISSING:
            return item
        raise _NotPlain

    def matches(self, function, tensors):
        """Whether a function is this one, except for its tensors, which are appended to `tensors`."""
        if type(function) is not types.FunctionType or function.__code__ is not self.code:
            return False
        if function.__globals__ is not self.scope or function.__kwdefaults__ or function.__dict__:
            return False
        try:
            items = self._items(function)
        except ValueError:  # an empty cell
            return False
        if len(items) != len(self.held):
            return False
        for item, expected in zip(items, self.held):
            if expected is _TENSOR:
                if not isinstance(item, torch.Tensor):
                    return False
                tensors.append(item)
            elif type(expected) is _Plain:
                if not expected.matches(item, tensors):
                    return False
            elif item is not expected:
                kind = type(item)
                if kind is not type(expected) or not _is_value(kind) or item != expected:
                    return False
                if kind is float and not item and math.copysign(1, item) != math.copysign(1, expected):
                    return False
        return True


def _guards_of(tensors):
    """Returns PyTorch's comparison of tensors by class, dtype, device, shape, strides and whether they want a gradient.
    It refuses a tensor that is given twice. None: this PyTorch has none that tells."""
    try:
        from torch._C._dynamo.guards import TensorGuards

        sizes, strides = [list(x.shape) for x in tensors], [list(x.stride()) for x in tensors]
        guards = TensorGuards(*tensors, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides)
        other = tensors[0].detach().mT if tensors[0].shape[-1] > 1 else tensors[0].detach().to(torch.float64)
        return guards if guards.check(*tensors) and not guards.check(other, *tensors[1:]) else None
    except Exception:  # of another PyTorch
        return None


class _Repeat:
    __slots__ = "mods", "guards", "form", "offsets", "places", "launch", "call"

    def tensors(self, operands, mods, form):
        """Returns the captured tensors of a call like this one, in the order of the program; None: the call differs."""
        found = []
        for plain, mod in zip(self.mods, mods):
            if plain is not None and not plain.matches(mod, found):
                return None
        if form != self.form or not self.guards.check(*operands, *found):
            return None
        q, k, v = operands
        if (q.data_ptr() | k.data_ptr() | v.data_ptr()) % ALIGNMENT:
            return None
        if found:
            if [x.data_ptr() % ALIGNMENT for x in found] != self.offsets:
                return None
            found = [found[at] for at in self.places]
        if self.launch.gradients is not None and torch.are_deterministic_algorithms_enabled() != self.launch.deterministic:
            return None
        return found


class _Repeats(list):
    missed = 0  # calls since it is full
    is_hopeless = False  # whether a mod was not plain


_kept = {}  # key -> _Repeats


def look_of(score_mod, block_mask, flags):
    """Returns what calls like an earlier one have in common with it on sight: (key, mods, form). None: none will be.
    The key counts the code of mods, which are functions, and whether gradients are recorded, which PyTorch's comparison
    of tensors does not. Masks with lists of their own are not looked at."""
    mask_mod = form = None
    if block_mask is not None:
        if type(block_mask) is not BlockMask or block_mask._of is None:
            return None
        mask_mod = block_mask.mask_mod
        form = block_mask.seq_lengths, block_mask.BLOCK_SIZE, block_mask._of[:2]
    codes = []  # _Plain compares them
    for mod in (*parts(score_mod), mask_mod):
        if mod is not None and type(mod) is not types.FunctionType:
            return None
        codes.append(None if mod is None else id(mod.__code__))
    return (*codes, flags, torch.is_grad_enabled()), (score_mod, mask_mod), form


def repeated(look, operands):
    """Returns (an earlier call like this one, its captured tensors), or None. `look`: as from look_of()."""
    key, mods, form = look
    for repeat in _kept.get(key, ()):
        tensors = repeat.tensors(operands, mods, form)
        if tensors is not None:
            return None if is_watched() else (repeat, tensors)  # guards know classes, but not all modes
    return None


def remember(look, operands, translation, launch, scale, call):
    """Keeps a call for repeated(), if it can tell calls like it. `scale` is that of a call which gives none."""
    (key, mods, form), plan, tensors, repeat = look, translation.plan, [], _Repeat()
    kept = _kept.get(key)
    if kept is None:
        if len(_kept) >= _MOST_KEPT:
            _kept.clear()
        kept = _kept[key] = _Repeats()
    if kept.is_hopeless:
        return
    if len(kept) >= _MOST_OF_A_KEY:
        kept.missed += 1
        if kept.missed < _MOST_MISSED:
            return
        kept.clear()
        kept.missed = 0
    try:
        repeat.mods = [None if mod is None else _Plain(mod, tensors) for mod in mods]
    except (_NotPlain, ValueError):
        kept.is_hopeless = True
        return
    found = translation.captured
    is_simple = not plan.scalars and all(type(at) is int for _, at, _ in plan.tensors)
    if not translation.is_kept or not is_simple or [*map(id, tensors)] != [*map(id, found)]:
        return
    repeat.guards = _guards_of([*operands, *tensors])
    if repeat.guards is None or any(x.data_ptr() % ALIGNMENT for x in operands):
        return
    repeat.form, repeat.offsets = form, [x.data_ptr() % ALIGNMENT for x in tensors]
    repeat.places, repeat.call = [at for _, at, _ in plan.tensors], call
    repeat.launch = dataclasses.replace(launch, scale=scale, mask=None)  # whoever owns it may go
    kept.append(repeat)
