"""Builds IR text (grammar in src/ir/printer.h): typed, pure, hash-consed values, and their captures.

In: operations on values. Out: a `Program`. Its text declares constants and extents that are known to change as run-time
scalars and free extents.
"""

import dataclasses
import itertools
import keyword
import math
import operator
import re
import struct
import typing

PARAMS = {"score": "f32", "b": "i32", "h": "i32", "q_idx": "i32", "kv_idx": "i32"}


_PARAMS_OF = {"mask_mod": slice(1, None), "sink_mod": slice(1, 4)}


def params_of(what):
    """Returns the parameters that a mod, `what`, is a function of; also what an output reduces, by its name in IR text."""
    if what == "output" or what.startswith("reduce_"):
        return "prob", *PARAMS
    return tuple(PARAMS)[_PARAMS_OF.get(what, slice(None))]


def parameters_of(what):
    """Returns the names of the parameters of a mod."""
    return tuple("prob" if what == "prob_mod" and name == "score" else name for name in params_of(what))


# Extents by name that an axis has if this position indexes it.
EXTENT_OF_PARAM = {"b": "B", "h": "H", "q_idx": "Q_LEN", "kv_idx": "KV_LEN"}
DIMS = ("B", "H", "HKV", "Q_LEN", "KV_LEN")
INT_BITS = {"i32": 32, "i64": 64}
# The smallest and the largest number of a dtype.
LIMITS = {f"int{bits}": (-(1 << bits - 1), (1 << bits - 1) - 1) for bits in (8, 16, 32, 64)}
LIMITS |= {f"uint{bits}": (0, (1 << bits) - 1) for bits in (8, 16, 32)} | {"bool": (0, 1)}
KNOWN_INDICES = {"add": operator.add, "mul": operator.mul, "mod": operator.mod, "floor_div": operator.floordiv}
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")


def halves(number):
    """Returns the low and the high 32 bits of an i64, as i32: scalars of the launch have no i64."""
    return wrap(number, "i32"), number >> 32


class Value:
    """A node: an operation with operands, or a leaf. Equal nodes of one builder are one object."""

    __slots__ = ("op", "type", "operands", "attr", "number")

    def __init__(self, op, type, operands, attr, number):
        self.op, self.type, self.operands, self.attr, self.number = op, type, operands, attr, number

    @property
    def is_const(self):
        return self.op == "const"


@dataclasses.dataclass
class Capture:
    """A tensor, or a scalar given by value if `is_scalar`; `half`: which of halves() of an i64."""

    name: str
    dtype: str
    shape: tuple
    is_scalar: bool = False
    half: typing.Optional[int] = None
    fixed: set = dataclasses.field(default_factory=set)  # axes whose extents the program was made for
    users: list = dataclasses.field(default_factory=list)  # by axis: the parameters that index it directly


def round_f32(number):
    try:
        return struct.unpack("f", struct.pack("f", number))[0]
    except OverflowError:
        return math.copysign(math.inf, number)


def wrap(number, type):
    bits = INT_BITS[type]
    return (int(number) + (1 << (bits - 1))) % (1 << bits) - (1 << (bits - 1))


class Builder:
    """Makes values. `positions` has the number of positions of each parameter, if it is known."""

    def __init__(self, positions=None):
        self.nodes, self.known, self.captures, self.names = [], {}, [], set(DIMS)
        self.positions, self.known_bounds = positions or {}, []  # bounds by number of a value

    def make(self, op, type, operands=(), attr=None):
        key = (op, type, tuple(operand.number for operand in operands), attr)
        value = self.known.get(key)
        if value is None:
            value = self.known[key] = Value(op, type, tuple(operands), attr, len(self.nodes))
            self.nodes.append(value)
        return value

    def param(self, name):
        return self.make("param", PARAMS.get(name, "f32"), (), name)

    def const(self, number, type):
        """Returns the number in a type, converted as torch and JAX convert a Python number."""
        if type == "bool":
            number = bool(number)
        elif type == "f32":
            number = round_f32(float(number))
            number = number if number == number else math.nan
            # 0.0 == -0.0, but they are two constants.
            return self.make("const", type, (), ("f32", number, math.copysign(1, number) if number == 0 else 0))
        else:
            if isinstance(number, float) and not math.isfinite(number):
                raise ValueError(f"{number} is no integer")
            number = wrap(number, type)
        return self.make("const", type, (), (type, number, 0))

    def number(self, value):
        return value.attr[1]

    def capture(self, capture):
        """Declares a Capture, whose name is a hint at first. Returns its number."""
        capture.name = self._new_name(capture.name)
        capture.users = [set() for _ in capture.shape]
        self.captures.append(capture)
        return len(self.captures) - 1

    def _new_name(self, hint):
        name = re.sub(r"\W", "_", hint, flags=re.ASCII).strip("_")
        if not name or name[0].isdigit() or keyword.iskeyword(name) or re.fullmatch(r"[nN]\d+(_high)?", name):
            name = f"t_{name}" if name else "t"
        numbered = (name if number == 1 else f"{name}_{number}" for number in itertools.count(1))
        unique = next(name for name in numbered if name not in self.names)
        self.names.add(unique)
        return unique

    def load(self, capture, indices):
        declared = self.captures[capture]
        type = {"bool": "bool", "i64": "i64"}.get(
            declared.dtype, "f32" if declared.dtype in ("f16", "bf16", "f32") else "i32"
        )
        if declared.is_scalar:
            return self.make("scalar", type, (), capture)
        indices = tuple(
            index.operands[0] if index.op == "cast" and index.operands[0].type == "i32" else index for index in indices
        )
        for users, index in zip(declared.users, indices):
            users.add(index.attr if index.op == "param" else None)
        return self.make("load", type, indices, capture)

    def joined(self, low, high):
        """Returns the i64 of two scalars that are its halves()."""
        low, high = (self.cast(self.load(half, ()), "i64") for half in (low, high))
        low = self.op("and", low, self.const(0xFFFFFFFF, "i64"))
        return self.op("or", self.op("shl", high, self.const(32, "i64")), low)

    def extent(self, capture, axis):
        return self.make("extent", "i32", (), (capture, axis))

    def iter(self, loop, count):
        return self.make("iter", "i32", (), (loop, count))

    def sum(self, iter, operand):
        return self.make("sum", operand.type, (operand,), iter.attr)

    # Short forms. The operands determine the types.

    def op(self, name, *operands):
        return self.make(name, operands[-1].type, operands)

    def compare(self, name, a, b):
        """Returns one of COMPARISONS."""
        if name in ("gt", "ge"):
            name, a, b = ("lt" if name == "gt" else "le"), b, a
        return self.make(name, "bool", (a, b))

    def select(self, condition, a, b):
        return self.make("select", a.type, (condition, a, b))

    def chosen(self, index, candidates):
        """Returns the candidate at an index, which is clamped. `candidates` are functions, called if they may be it."""
        if index.is_const:
            return candidates[min(max(int(self.number(index)), 0), len(candidates) - 1)]()
        result = candidates[-1]()
        for place in reversed(range(len(candidates) - 1)):
            is_here = self.compare("le", index, self.const(place, index.type))
            result = self.select(is_here, candidates[place](), result)
        return result

    def cast(self, value, type):
        if value.type == type:
            return value
        if value.is_const and (type == "f32" or value.type != "f32"):
            return self.const(self.number(value), type)
        return self.make("cast", type, (value,))

    def is_non_negative(self, value):
        """Whether an integer is proven to be at least 0, so that as an index it does not count from the end."""
        return value.type != "f32" and self.bounds(value)[0] >= 0

    def bounds(self, value):
        """Returns the smallest and the largest number that an integer can be."""
        while len(self.known_bounds) <= value.number:  # operands come before their users
            node = self.nodes[len(self.known_bounds)]
            whole = None if node.type == "f32" else LIMITS[{"bool": "bool", "i32": "int32", "i64": "int64"}[node.type]]
            found = whole and self._bounds(node, *(self.known_bounds[operand.number] for operand in node.operands))
            self.known_bounds.append(found and self.fitted(found, whole) or whole)
        return self.known_bounds[value.number]

    def fitted(self, bounds, whole):
        """Returns bounds of a result in its type, whose bounds are `whole`. An overflow is meaningless in torch."""
        return max(bounds[0], whole[0]), min(bounds[1], whole[1])

    def _bounds(self, value, a=None, b=None, c=None):
        """Returns the bounds of an integer result if nothing overflows; None: they are unknown. a, b and c are those of
        operands, None for floats."""
        op = value.op
        if op == "const":
            return (int(self.number(value)),) * 2
        if op in ("param", "iter", "extent"):
            count = self.positions.get(value.attr) if op == "param" else value.attr[1] if op == "iter" else None
            return 0, (count or 1 << 31) - 1
        if op == "load":
            return LIMITS.get({"u8": "uint8", "i8": "int8", "i16": "int16"}.get(self.captures[value.attr].dtype))
        if a is None or (b is None and len(value.operands) > 1):
            return None
        if op == "sum":
            return a[0] * value.attr[1], a[1] * value.attr[1]
        if op == "cast":
            return a
        if op == "select":
            return min(b[0], c[0]), max(b[1], c[1])
        if op == "neg":
            return -a[1], -a[0]
        if op == "abs":
            return 0, max(-a[0], a[1])
        if op == "add":
            return a[0] + b[0], a[1] + b[1]
        if op == "sub":
            return a[0] - b[1], a[1] - b[0]
        if op == "mul" or op == "floor_div" and b[0] > 0:
            corners = [KNOWN_INDICES[op](x, y) for x in a for y in b]
            return min(corners), max(corners)
        if op in ("min", "max"):
            fold = min if op == "min" else max
            return fold(a[0], b[0]), fold(a[1], b[1])
        if op == "and" and max(a[0], b[0]) >= 0:
            return 0, min(most for least, most in (a, b) if least >= 0)
        if op in ("or", "xor") and min(a[0], b[0]) >= 0:
            return 0, (1 << (a[1] | b[1]).bit_length()) - 1
        if op == "mod" and b[0] >= 0:  # by 0 it is 0
            return 0, min(a[1], max(b[1] - 1, 0)) if a[0] >= 0 else max(b[1] - 1, 0)
        if op in ("floor_div", "shl") and min(a[0], b[0]) >= 0:
            return 0, a[1] if op == "floor_div" else 1 << 64
        if op == "shr":
            return min(a[0], 0), max(a[1], 0)
        return None


def spelled(number, type):
    if type == "bool":
        return "true" if number else "false"
    if type == "i64":
        return f"{number}L"
    if type == "i32":
        return str(number)
    if number != number:
        return "nan"
    return repr(number) if math.isfinite(number) else ("inf" if number > 0 else "-inf")


_AFFINE = {
    "add": ("+", operator.add), "sub": ("-", operator.sub), "mul": ("*", operator.mul),
    "floor_div": ("//", operator.floordiv),
}  # fmt: skip


def _furthest(value, problem):
    """Returns (largest value of an index, its spelling). None: it is no position, with or without a number."""
    if value.op == "param":
        extent = problem.get(EXTENT_OF_PARAM.get(value.attr))
        return None if extent is None else (extent - 1, value.attr)
    if value.op == "cast" and value.type in INT_BITS and value.operands[0].type in INT_BITS:
        return _furthest(value.operands[0], problem)
    if value.op == "select":
        (below, _, index), (position, zero) = value.operands, value.operands[0].operands or (None, None)
        counts_from_end = below.op == "lt" and position is index and zero.is_const and zero.attr[1] == 0
        return _furthest(index, problem) if counts_from_end else None
    if value.op not in _AFFINE or not any(operand.is_const for operand in value.operands):
        return None
    number, other = sorted(value.operands, key=lambda operand: not operand.is_const)
    found, number = _furthest(other, problem), number.attr[1]
    sign, function = _AFFINE[value.op]
    is_turned = value.operands[0] is not other and value.op in ("sub", "floor_div")
    if found is None or is_turned or value.op in ("mul", "floor_div") and number <= 0:
        return None
    return function(found[0], number), f"{found[1]} {sign} {number}"


def _token(value):
    """Returns which position an integer is a slice of, by numbers: q_idx // 64 % 8 of q_idx. None: of none or several."""
    while value.type in INT_BITS and value.op in ("cast", "add", "sub", "floor_div", "mod"):
        others = [operand for operand in value.operands if not operand.is_const]
        if len(others) != 1:
            return None
        value = others[0]
    return value.attr if value.op == "param" and value.attr in ("q_idx", "kv_idx") else None


def _on_grids(values):
    """Returns the integers and conditions among `values`, operands first, which depend on coordinates of a grid; none if
    q_idx and kv_idx do not both have remainders by numbers: quotients alone make no grid."""
    slices = {value: _token(value) for value in values if value.op in ("floor_div", "mod") and value.operands[1].is_const}
    if not {"q_idx", "kv_idx"}.issubset(token for value, token in slices.items() if value.op == "mod"):
        return set()
    found = {value for value, token in slices.items() if token is not None}
    found |= {value.operands[0] for value in found if value.operands[0].op == "add"}  # where a rank's part of a grid begins
    for value in values:
        if value.type != "f32" and value.op != "load" and not found.isdisjoint(value.operands):
            found.add(value)
    return found


def _masks(score):
    """Returns the conditions under which a score is -inf."""
    chosen = [value for value in Program._reachable([score]) if value.op == "select"]
    return [x.operands[0] for x in chosen if any(arm.is_const and arm.attr[1] == -math.inf for arm in x.operands[1:])]


class Program:
    """The program of two functions, and the places of its numbers.

    `skeleton` is the program without its finite numbers and without the extents other than those of q and k. `numbers`
    are these, in the order of the skeleton. Programs that differ only in numbers have equal skeletons. `of_grids` are
    places of integers that masks on a grid depend on: kernels of boxes are planned by them.
    """

    def __init__(self, builder, outputs, problem):
        """outputs: {"score": Value, "mask": Value, "prob": Value, "sink": Value}; problem: {"B": ..., "KV_LEN": ...}, or empty."""
        self.lines, self.numbers, self.number_types, self.of_grids = [], [], [], set()
        in_order = lambda values: sorted(self._reachable(values), key=lambda value: value.number)  # noqa: E731
        live = in_order(outputs.values())
        of_prob = self._reachable([outputs["prob"]]) if "prob" in outputs else ()
        # Floats of a prob_mod: kernels are fast if the rate of a dropout and its factor are known to belong together.
        self.baked = {value for value in of_prob if value.op == "const" and value.attr[0] == "f32"}
        masks = [outputs["mask"]] if "mask" in outputs else []
        on_grids = _on_grids(in_order(masks + _masks(outputs["score"]) if "score" in outputs else masks))
        used = sorted(
            {
                value.attr if value.op in ("load", "scalar") else value.attr[0]
                for value in live
                if value.op in ("load", "scalar", "extent")
            }
        )
        self.captures = [builder.captures[index] for index in used]
        self.place = {index: place for place, index in enumerate(used)}
        self.extents = {}  # (capture, axis) -> name of an extent of the problem, or place of a number
        for index, capture in zip(used, self.captures):
            shape = [self._extent(index, axis, capture, problem) for axis in range(len(capture.shape))]
            kind, dtype = ("scalar", capture.dtype) if capture.is_scalar else ("tensor", capture.dtype)
            self.lines.append([f"{kind} {capture.name}: {dtype}", *self._bracketed(shape)])
        # (capture, axis, index) of all gathers.
        self.reads = [(x.attr, axis, index) for x in live if x.op == "load" for axis, index in enumerate(x.operands)]
        self.names = {}
        for value in live:
            if value.op not in ("param", "const", "extent", "iter", "scalar"):
                self.names[value.number] = f"%{len(self.names)}"
                self.lines.append(self._line(value, value in on_grids))
        for name, value in outputs.items():
            self.lines.append([f"output {name}({', '.join(params_of(name + '_mod'))}) -> ", self._operand(value)])
        self.skeleton = tuple(tuple("\0" if isinstance(part, int) else part for part in line) for line in self.lines)

    @staticmethod
    def _reachable(outputs):
        found, left = set(), list(outputs)
        while left:
            value = left.pop()
            if value not in found:
                found.add(value)
                left.extend(value.operands)
        return found

    def _number(self, number, type):
        self.numbers.append(number)
        self.number_types.append(type)
        return len(self.numbers) - 1

    def _extent(self, index, axis, capture, problem):
        size, users = capture.shape[axis], capture.users[axis]
        for param in ("kv_idx", "q_idx", "h", "b"):
            name = EXTENT_OF_PARAM[param]
            if param in users and axis not in capture.fixed and problem.get(name) == size:
                self.extents[index, axis] = name
                return name
        # A number that the program was made for, or one that may become a free extent.
        part = str(size) if axis in capture.fixed else self._number(size, "extent")
        self.extents[index, axis] = part
        return part

    def check(self, problem, shapes, is_true=bool):
        """Raises IndexError, like PyTorch without torch.compile, if an index leaves its tensor and is a position, or a
        position plus, times or divided by a number. Other indices are clamped. `problem` is {"B": ...}; `shapes` are
        those of captures, by name. Extents may be symbolic; `is_true` decides comparisons."""
        for index, axis, value in self.reads:
            capture = self.captures[self.place[index]]
            found = _furthest(value, problem)
            if found is not None:
                (last, spelling), size = found, shapes[capture.name][axis]
                if is_true(last >= size):
                    raise IndexError(
                        f"the mod reads `{capture.name}` at {spelling}, which reaches {int(last)}, on axis {axis}, "
                        f"whose extent is {int(size)}: `{capture.name}` is too short for these operands"
                    )

    @staticmethod
    def _bracketed(parts):
        if not parts:
            return []
        return ["[", *[piece for part in parts for piece in (part, ", ")][:-1], "]"]

    def _operand(self, value):
        if value.op == "const":
            type, number, _ = value.attr
            is_word = type == "bool" or type == "f32" and (not math.isfinite(number) or value in self.baked)
            return spelled(number, type) if is_word else self._number(number, type)
        if value.op == "param":
            return f"%{value.attr}"
        if value.op == "iter":
            return "%i{}:{}".format(*value.attr)
        if value.op == "scalar":
            return f"@{self.captures[self.place[value.attr]].name}"
        if value.op == "extent":
            return ("extent", self.extents[value.attr])
        return self.names[value.number]

    def _line(self, value, is_on_grid):
        type = value.operands[0].type if value.op in ("eq", "ne", "lt", "le", "isnan") else value.type
        parts = [f"{self.names[value.number]} = {value.op} {type} "]
        if value.op == "load":
            parts.append(self.captures[self.place[value.attr]].name)
            return parts + self._bracketed([self._operand(index) for index in value.operands])
        if value.op == "sum":
            parts.append("%i{}:{}, ".format(*value.attr))
        for operand in value.operands:
            parts += [self._operand(operand), ", "]
            if is_on_grid and operand.is_const and operand.type in INT_BITS:
                self.of_grids.add(parts[-2])
        return parts[:-1]

    def text(self, varying=frozenset(), wide=frozenset()):
        """Returns IR text. `varying` are places of numbers that become scalars of the launch, `n3`, or free extents,
        `N3`. An i64 is given as an i32, those in `wide` as halves()."""
        free = {place for place in varying if self.number_types[place] == "extent"}
        scalars = {place: self.number_types[place] for place in varying if place not in free}
        head = [f"dim N{place}" for place in sorted(free)]
        tensors = [line for line in self.lines if line[0].startswith(("tensor", "scalar"))]
        body = []
        for place, type in sorted(scalars.items()):
            if place in wide:
                body += [
                    f"%low{place} = cast i64 @n{place}",
                    f"%bits{place} = and i64 %low{place}, {0xFFFFFFFF}L",
                    f"%high{place} = cast i64 @n{place}_high",
                    f"%top{place} = shl i64 %high{place}, 32L",
                    f"%wide{place} = or i64 %top{place}, %bits{place}",
                ]
            elif type == "i64":
                body.append(f"%wide{place} = cast i64 @n{place}")

        def part_text(part):
            if isinstance(part, tuple):  # an extent as an operand
                part = part[1]
                if isinstance(part, int):
                    return f"#N{part}" if part in free else str(self.numbers[part])
                return f"#{part}" if part in DIMS else part
            if not isinstance(part, int):
                return part
            if part in free:
                return f"N{part}"
            if part in scalars:
                return f"%wide{part}" if scalars[part] == "i64" else f"@n{part}"
            kind = self.number_types[part]
            return str(self.numbers[part]) if kind == "extent" else spelled(self.numbers[part], kind)

        text = ["".join(map(part_text, line)) for line in tensors]
        for place, type in sorted(scalars.items()):
            text.append(f"scalar n{place}: {'f32' if type == 'f32' else 'i32'}")
            text += [f"scalar n{place}_high: i32"] if place in wide else []
        text += body
        text += ["".join(map(part_text, line)) for line in self.lines[len(tensors) :]]
        lines = head + text or ['source "<traced>"']  # of plain attention: an empty text is invalid
        return "\n".join(lines) + "\n"

    def scalars(self, varying, wide):
        """Returns the numbers of the scalars of text(), in its order."""
        found = {}
        for place in sorted(varying):
            if place in wide:
                found[f"n{place}"], found[f"n{place}_high"] = halves(self.numbers[place])
            elif self.number_types[place] != "extent":
                found[f"n{place}"] = self.numbers[place]
        return found

    def is_wide(self, place):
        """Whether the number at a place is beyond 32 bits."""
        return self.number_types[place] == "i64" and halves(self.numbers[place])[0] != self.numbers[place]
