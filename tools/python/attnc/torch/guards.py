"""Looks up at every call what a mod depends on: code, closures, globals, attributes.

`describe(function, ...)` walks what the functions can reach. It returns a key, and the tensors in the order of the
walk. Functions with equal keys have the same graph, whichever tensors they capture. Tensors count by dtype, shape and
device, and by which of them are identical; numbers count by value, code by identity. Attributes are those whose names
occur in the code. Key parts that are ids belong to objects in `alive`; the owner of the key must keep these.

Operators, builtins and descriptors call methods that no code names. `Ran` sees all functions that run while a mod is
traced. `Description.missed` returns those that the walk did not reach; later walks may be given their names.
"""

import abc
import collections
import dataclasses
import dis
import enum
import functools
import itertools
import math
import sys
import types
import typing

import torch

_MISSING = object()
# Libraries that are assumed not to change. What their functions close over counts; what these read from their modules
# does not. PyTorch traces with some of them.
_STABLE = frozenset(sys.stdlib_module_names) | {
    "attnc", "builtins", "mpmath", "networkx", "numpy", "optree", "sympy", "torch", "triton", "typing_extensions",
}  # fmt: skip
_OPAQUE_NAMES = frozenset(
    {"globals", "locals", "vars", "eval", "exec", "__dict__", "__import__", "import_module", "open", "input"}
    | {"environ", "getenv", "fields", "astuple", "getmembers"}
)
_MOST_ITEMS = 4096
VALUES = frozenset({bool, str, bytes, type(None), complex, torch.dtype, torch.device, torch.layout, type(...)})
_IDENTITIES = (
    types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType, types.GetSetDescriptorType,
    torch._C.ScriptFunction, torch._ops.OpOverload, torch._ops.OpOverloadPacket, torch._ops.HigherOrderOperator,
    type(collections.namedtuple("_", "field").field),  # the tuple holds what it reads
)  # fmt: skip
# Bases of classes whose contents can all be looked up, as attributes or items.
_OPEN_BASES = frozenset(
    {object, abc.ABC, typing.Generic, typing.Protocol, list, tuple, dict, set, frozenset, int, float, torch.nn.Module}
    | {kind for kind in vars(enum).values() if isinstance(kind, type)}
)


@functools.cache
def is_stable(module):
    """Whether a module, by name, is assumed not to change."""
    return module.partition(".")[0] in _STABLE or module.startswith("namedtuple_")


def _hides_contents(base):
    return is_stable(base.__module__) and base not in _OPEN_BASES and base.__module__ != "collections.abc"


def _module_of(frame):
    return frame.f_globals.get("__name__") or ""


class Ran:
    """Collects in `codes` the user code that runs inside. A profiler or a debugger may be active, but not both."""

    _HOOKS = (sys.getprofile, sys.setprofile), (sys.gettrace, sys.settrace)

    def __init__(self):
        self.codes, self.set_hook = {}, None

    def _called(self, frame, event, argument):
        if event == "call" and not is_stable(_module_of(frame)):
            is_loading = frame.f_back is not None and _module_of(frame.f_back).startswith("importlib.")
            if not is_loading:
                self.codes[frame.f_code] = None

    def __enter__(self):
        self.set_hook = next((set_hook for hook, set_hook in self._HOOKS if hook() is None), None)
        if self.set_hook:
            self.set_hook(self._called)

    def __exit__(self, *exception):
        if self.set_hook:
            self.set_hook(None)


@dataclasses.dataclass
class _Names:
    """The names that a code object, and those within it, read."""

    globals: tuple
    modules: tuple  # that it imports
    attributes: tuple
    is_opaque: bool  # whether it reads more than these
    codes: tuple  # itself, and those within


_names_of_code = {}  # id of a code object -> (the code object, _Names)


def names_of(code):
    """Returns the _Names of a code object."""
    found = _names_of_code.get(id(code))
    if found is None:
        if len(_names_of_code) >= 4096:
            _names_of_code.clear()
        found = _names_of_code[id(code)] = code, _read_names(code)
    return found[1]


def _read_names(code):
    found_globals, modules, attributes, left, codes = {}, {}, {}, [code], []
    is_opaque = False
    while left:
        current = left.pop()
        codes.append(current)
        instructions = [*dis.get_instructions(current)]
        for i, instruction in enumerate(instructions):
            if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
                found_globals[instruction.argval] = None
                is_opaque |= instruction.argval == "getattr" and not _names_attribute(instructions[i + 1 :])
            elif instruction.opname in ("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR", "IMPORT_FROM"):
                attributes[instruction.argval] = None
            elif instruction.opname == "IMPORT_NAME":
                is_opaque |= instructions[i - 2].argval != 0  # the level: a relative name is looked up nowhere
                parts = instruction.argval.split(".")
                modules.update((".".join(parts[: count + 1]), None) for count in range(len(parts)))
        for const in current.co_consts:
            if isinstance(const, types.CodeType):
                left.append(const)
            elif isinstance(const, str):  # for getattr, attrgetter and the like
                attributes.update((part, None) for part in const.split(".") if part.isidentifier())
    is_opaque |= not _OPAQUE_NAMES.isdisjoint({**found_globals, **attributes})
    return _Names(tuple(found_globals), tuple(modules), tuple(attributes), is_opaque, tuple(codes))


def _names_attribute(instructions):
    """Whether the second of the arguments that these instructions push is a string in the code."""
    depth = 0
    for instruction in instructions:
        if depth > 1 or instruction.opcode in dis.hasjrel or instruction.opcode in dis.hasjabs:
            return False
        depth += dis.stack_effect(instruction.opcode, instruction.arg)
        if depth == 2 and instruction.opname == "LOAD_CONST":
            return isinstance(instruction.argval, str)
    return False


class Description:
    """The description of some functions. `key` is None if they reach something that cannot be compared; then nothing
    may be kept. `names` are attributes to look up in all objects."""

    __slots__ = ("parts", "tensors", "names", "alive", "held", "seen", "objects", "attributes", "is_known")

    def __init__(self, functions, names=()):
        self.parts, self.tensors, self.names, self.alive, self.held = [], [], [], [], []
        self.seen, self.objects, self.attributes, self.is_known = {}, [], dict.fromkeys(("__call__", *names)), True
        for function in functions:
            self._add(function, "")
        if self.objects:
            self._add_attributes()

    @property
    def key(self):
        return tuple(self.parts) if self.is_known else None

    def missed(self, codes):
        """Returns the code, among `codes` that ran, that the walk did not reach."""
        walked = {code for item in self.alive if isinstance(item, types.CodeType) for code in names_of(item).codes}
        return codes.keys() - walked

    def _add(self, item, name):
        kind = type(item)
        parts = self.parts
        if kind is int:
            parts.append(int)
            parts.append(item)
        elif kind is float:
            parts.append(float)
            parts.append(item if item and item == item else (math.copysign(1, item), item == item))
        elif kind in VALUES:
            parts.append(kind)
            parts.append(item)
        elif id(item) in self.seen:
            parts.append(("again", self.seen[id(item)]))
        elif kind is types.FunctionType:
            self._add_function(item)
        elif isinstance(item, torch.Tensor):
            self._add_tensor(item, name)
        else:
            self._add_object(item, kind, name)

    def _mark(self, item):
        self.seen[id(item)] = len(self.seen)
        self.held.append(item)  # keeps its id unique during the walk

    def _add_id(self, item):
        self.parts.append(id(item))
        self.alive.append(item)

    def _add_tensor(self, tensor, name):
        self.seen[id(tensor)] = len(self.seen)
        self.tensors.append(tensor)
        self.names.append(name)
        self.parts.append(tensor.dtype)
        self.parts.append(tensor.shape)
        self.parts.append(tensor.get_device() if tensor.is_cuda or tensor.is_cpu else tensor.device)

    def _add_function(self, function):
        self.seen[id(function)] = len(self.seen)
        code = function.__code__
        self._add_id(code)
        if function.__defaults__:
            for item in function.__defaults__:
                self._add(item, "")
        if function.__kwdefaults__:
            for name, item in function.__kwdefaults__.items():
                self.parts.append(name)
                self._add(item, name)
        if function.__closure__:
            for name, cell in zip(code.co_freevars, function.__closure__):
                try:
                    item = cell.cell_contents
                except ValueError:
                    item = _MISSING
                self._add(item, name)
        if function.__dict__:
            self.objects.append((function, ""))
        scope = function.__globals__
        if is_stable(scope.get("__name__", "")):
            return
        names = names_of(code)
        if names.is_opaque:
            self.is_known = False
        if names.attributes:
            self.attributes.update(dict.fromkeys(names.attributes))
        for name in names.modules:
            if not is_stable(name):
                module = sys.modules.get(name)  # none before its first import
                if module is None:
                    self.is_known = False
                else:
                    self.parts.append(name)
                    self._add(module, name)
        for name in names.globals:
            item = scope.get(name, _MISSING)
            if item is not _MISSING:
                self.parts.append(name)
                self._add(item, name)

    def _add_object(self, item, kind, name):
        parts = self.parts
        self._mark(item)
        if isinstance(item, (list, tuple)):
            parts.append((kind, len(item)))
            self._add_items(item, name)
        elif isinstance(item, (set, frozenset)):
            parts.append((kind, tuple(sorted(map(repr, item)))))
        elif isinstance(item, dict):
            parts.append((kind, len(item)))
            self._add_items(item.keys(), name)
            self._add_items(item.values(), name)
        elif isinstance(item, types.MethodType):
            parts.append(types.MethodType)
            self._add(item.__func__, name)
            self._add(item.__self__, name)
        elif isinstance(item, functools.partial):
            parts.append(functools.partial)
            self._add(item.func, name)
            self._add_items(item.args, name)
            self._add(item.keywords, name)
        elif isinstance(item, (types.ModuleType, type)):
            self._add_id(item)
            if not is_stable(item.__module__ if isinstance(item, type) else item.__name__):
                self.objects.append((item, name))
        elif isinstance(item, (enum.Enum, *_IDENTITIES)) or item is _MISSING:
            self._add_id(item)
        elif isinstance(item, (range, slice, int, float)) or _is_number_of_numpy(item):
            self._add_id(kind)
            parts.append(repr(item))
        elif isinstance(item, torch.nn.Module):
            self._add_id(kind)
            if any(map(_hides_contents, kind.__mro__)) or kind is torch.nn.Module:
                for group, items in vars(item).items():  # what its code reads is not looked up
                    if "hook" not in group:
                        parts.append(group)
                        self._add(items, name)
        elif any(map(_hides_contents, kind.__mro__)):
            self.is_known = False
        else:
            self._add_id(kind)
        if not is_stable(kind.__module__):
            self.objects.append((item, name))

    def _add_items(self, items, name):
        if len(items) > _MOST_ITEMS:
            self.is_known = False
            return
        for item in items:
            self._add(item, name)

    def _add_attributes(self):
        """Adds the attributes of objects that the code reads. Code of one object may read more of another."""
        done, count = set(), -1
        while len(done) > count:
            count = len(done)
            for item, name in itertools.product([item for item, _ in self.objects], list(self.attributes)):
                if (id(item), name) not in done:
                    done.add((id(item), name))
                    self._add_attribute(item, name)

    def _add_attribute(self, item, name):
        found = _attribute(item, name)
        if found is _MISSING:
            return
        if isinstance(found, types.FunctionType):  # it may call methods that it overrides
            for kind in (item if isinstance(item, type) else type(item)).__mro__:
                if name in kind.__dict__ and not is_stable(kind.__module__):
                    self._add(kind.__dict__[name], name)
        if isinstance(found, (staticmethod, classmethod)):
            found = found.__func__
        elif isinstance(found, property):
            found = found.fget
        elif isinstance(found, functools.cached_property):
            found = found.func
        elif isinstance(found, types.MemberDescriptorType):  # of __slots__
            found = getattr(item, name, _MISSING)
        self.parts.append(name)
        self._add(found, name)


def _is_number_of_numpy(item):
    try:
        return getattr(item, "shape", None) == ()
    except Exception:  # of its __getattr__
        return False


def _attribute(item, name):
    """Looks up an attribute without running code of the object."""
    own = getattr(item, "__dict__", None)
    if own is not None:
        if name in own:
            return own[name]
        if isinstance(item, torch.nn.Module):
            for group in ("_parameters", "_buffers", "_modules"):
                if name in own[group]:
                    return own[group][name]
    for base in (item if isinstance(item, type) else type(item)).__mro__:
        if name in base.__dict__:
            return base.__dict__[name] if not is_stable(base.__module__) else _MISSING
    return _MISSING


def describe(*functions, names=()):
    return Description(functions, names)
