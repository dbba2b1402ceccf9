"""What the text front end says of a mod, said of a mod that is a function of Python.

In: the error of a mod that asked a traced value for its number, or what a mod returned. Out: an error with the front
end's id, words and layout, at the place in the mod's source. Not: what only one of PyTorch and JAX has.
"""

import ast
import bisect
import contextlib
import functools
import inspect
import itertools
import linecache
import re
import types
import typing

from ._calls import is_ours, place_of, traceback_of
from ._spec import WORDS
from .errors import UntranslatableError

_MEANT = "did you mean `{}`?"  # as closest() of the front end
_MOST_QUOTED = 60
_SIGNS = {
    ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==",
    ast.NotEq: "!=", ast.Is: "is", ast.IsNot: "is not", ast.In: "in", ast.NotIn: "not in",
}  # fmt: skip
_OF_NUMBERS = ("item", "numpy", "tolist")  # methods that give numbers to Python
_WITH_TEST = (ast.If, ast.While, ast.IfExp, ast.Assert)
_WITH_ARGUMENTS = r"takes .*positional argument|missing \d+ required positional|required keyword-only"


class Door(typing.NamedTuple):
    """Whose functions a mod calls: `name` is that of `module` in mods. `array` makes a table; int() and float() of Python
    are `conversions`. Files in `folders` are not the mod's."""

    name: str
    module: types.ModuleType
    array: str
    conversions: dict[str, str]
    folders: tuple[str, ...]


def rendered(where, severity, message, hint, line="", start=0, end=None):
    """Returns a finding as a compiler prints it. `start` and `end` are bytes of the line."""
    text = f"{where}: {severity}: {message}"
    if line:
        before, marked = line.encode()[:start].decode(), line.encode()[start:end].decode()
        blank = re.sub(r"[^\t]", " ", before)
        text += f"\n{line}\n{blank}^{'~' * (len(marked) - 1)}"
    return f"{text}\nnote: {hint}" if hint else text


def asked(function, error, dtype, door):
    """Returns the error to raise if a mod asked for the number in a traced value of this dtype."""
    traceback = traceback_of(error, *door.folders)
    source = traceback and Source.of(traceback)
    parts, kind = source.parts if source else (), _kind(dtype)
    found = next(filter(None, (_finding(source, part, kind, door) for part in parts)), None)
    instead = f"a mod is computed for all scores at once: instead of Python and NumPy use `{door.name}.where`, `&`, `|` and `~`"
    if not found and len(parts) == 1:
        found = "expected-number", (source.short(parts[0], "this"), kind), parts[0], instead
    if not found:
        place, line = place_of(error, *door.folders)
        where = f"{place}: `{line}`" if line else name_of(function)
        return UntranslatableError(f"{where} asks for the number in a traced value: {instead}")
    id, holes, node, hint = found
    message, usual = WORDS[id]
    usual = usual.replace("torch.tensor", f"{door.name}.{door.array}").replace("torch.", f"{door.name}.")
    hint = usual.format(*holes) if hint is None else hint
    return UntranslatableError(source.rendered(node, message.format(*holes), hint), id)


# The parameters of a mod of a kind, in words.
_TAKES = {
    "score_mod": "score, b, h, q_idx and kv_idx", "mask_mod": "b, h, q_idx and kv_idx",
    "prob_mod": "prob, b, h, q_idx and kv_idx", "sink_mod": "b, h and q_idx",
    "weight_mod": "score, b, h, q_idx and kv_idx",
    "output": "prob, score, b, h, q_idx and kv_idx",
}  # fmt: skip


def check_mod(what, mod):
    """Raises TypeError if what an attention was given as score_mod, prob_mod, sink_mod or weight_mod is no function."""
    if mod is not None and not callable(mod):
        instead = "block_mask=..." if hasattr(mod, "mask_mod") else f"a function of {_TAKES[what]}"
        raise TypeError(f"{what} is a {type(mod).__name__}: give {instead}")


def check_mask_mod(mask_mod):
    """Raises TypeError if what create_block_mask() was given is no function, or a score_mod."""
    if not callable(mask_mod):
        raise TypeError(f"mask_mod is a {type(mask_mod).__name__}: give a function of b, h, q_idx and kv_idx")
    if type(mask_mod) is types.FunctionType and mask_mod.__code__.co_argcount - len(mask_mod.__defaults__ or ()) == 5:
        raise TypeError(
            f"create_block_mask takes a mask_mod(b, h, q_idx, kv_idx), but {mask_mod.__qualname__} has five parameters, "
            "as a score_mod: give it to flex_attention"
        )


def check_heads(query, key, enable_gqa):
    """Raises ValueError if the columns of query and key differ, or if their heads form no groups."""
    if query.shape[3] != key.shape[3]:
        raise ValueError(f"query has {query.shape[3]} columns, key {key.shape[3]}: they must be equal")
    heads, kv_heads = query.shape[1], key.shape[1]
    if not enable_gqa and heads != kv_heads:
        raise ValueError(f"query has {heads} heads, key {kv_heads}: set enable_gqa=True for grouped queries")
    if kv_heads == 0 or heads % kv_heads:
        raise ValueError(f"query has {heads} heads, which is no multiple of the {kv_heads} of key")


def check_mask_sizes(query, sizes):
    """Raises ValueError if query has another batch, or heads, than a block mask, whose `sizes` end with both."""
    for axis, what in ((-2, "batch"), (-1, "heads")):
        if len(sizes) >= -axis and sizes[axis] not in (1, query.shape[axis + 2]):
            raise ValueError(
                f"block_mask is of {what} {sizes[axis]}, query has {query.shape[axis + 2]}: create one for "
                f"{query.shape[axis + 2]}, or for None if mask_mod does not depend on {what[0]}"
            )


def other_lengths(lengths, query, key):
    """Returns what is wrong with a block mask of these lengths."""
    return (
        f"block_mask is of {lengths[0]} queries and {lengths[1]} keys, the operands have {query.shape[2]} and "
        f"{key.shape[2]}: create one of these lengths"
    )


def of_call(function, error, what):
    """Returns the error to raise if a mod does not take the arguments of its kind, `what`. None: it is another error."""
    traceback = error.__traceback__
    while traceback.tb_next is not None:
        traceback = traceback.tb_next
    did_run = not traceback.tb_frame.f_globals.get("__name__", "").startswith("attnc.")
    if did_run or not isinstance(error, TypeError) or not re.search(_WITH_ARGUMENTS, str(error)):
        return None
    advice = (
        "if it is a mask_mod, give block_mask=create_block_mask(mask_mod, ...)" if what == "score_mod"
        else "if it is a score_mod, give it as score_mod"
    )  # fmt: skip
    message = f"the {what} {name_of(function)} must take {_TAKES[what]}, and no more ({error})"
    source = Source.of_function(function)
    return UntranslatableError(source.rendered(source.parts[0], message, advice) if source else f"{message}: {advice}")


def of_result(function, what, id, found=""):
    """Returns the error to raise if a mod, `what`, returns what is neither a number nor, as a mask_mod, a bool. `id` is the
    kind of mistake, and `found` has the words for what it returns."""
    source = Source.of_function(function)
    node = source.returned() if source else None
    text = source.short(node, "...") if isinstance(node, ast.expr) else "..."
    if id == "mask-result" and found in _KINDS.values():
        repair = f"compare it: `{text} != 0`, or `>= 0`"
    elif what != "mask_mod":
        repair = "return one number"
    else:
        repair = "return one bool: join conditions by `&` and `|`"
    name = getattr(code_of(function), "co_name", what)
    name = name if name.isidentifier() else what
    message, hint = WORDS[id]
    message, hint = message.format(found if id == "array-result" else name, found), hint.replace("{2}", repair)
    return UntranslatableError(source.rendered(node, message, hint) if source else f"{message}: {hint}", id)


def name_of(function):
    return getattr(function, "__qualname__", None) or repr(function)


def unwrapped(function):
    """Returns the function that a wrapper or a partial calls."""
    function = inspect.unwrap(function)
    while isinstance(function, functools.partial):
        function = inspect.unwrap(function.func)
    return function


def held_by(functions):
    """Yields (name, value) of the functions, and of what they hold: in cells, globals, defaults, attributes of their objects,
    arguments of partials. What functions and sequences among it hold comes as well, except for those of torch and JAX."""
    left, seen = [("", function) for function in functions], set()
    while left:
        name, value = left.pop()
        yield name, value
        if isinstance(value, (list, tuple)):
            left += [(name, item) for item in value]
        package = str(getattr(value, "__module__", "")).partition(".")[0]
        if not callable(value) or id(value) in seen or package in ("torch", "jax", "jaxlib"):
            continue
        seen.add(id(value))
        if isinstance(value, functools.partial):
            left += [("", value.func), *((name, item) for item in value.args), *value.keywords.items()]
        left += getattr(getattr(value, "__self__", value), "__dict__", {}).items()
        function = unwrapped(getattr(value, "__func__", value))
        if inspect.isfunction(function):
            code, scope, cells = function.__code__, function.__globals__, function.__closure__ or ()
            left += [(name, scope[name]) for name in code.co_names if name in scope]
            left += [*enumerate(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).items()]
            for name, cell in zip(code.co_freevars, cells):
                with contextlib.suppress(ValueError):  # not assigned yet
                    left.append((name, cell.cell_contents))


def code_of(function):
    """Returns the code that runs if a function, or a method or object like one, is called. None: it is not Python's."""
    function = unwrapped(function)
    function = getattr(function, "forward", function)  # of a torch.nn.Module
    return getattr(function, "__code__", None) or getattr(type(function).__call__, "__code__", None)


_KINDS = {"bool": "a bool", "f": "a float", "bfloat": "a float", "float": "a float"}
_KINDS |= dict.fromkeys(("i", "int", "uint"), "an int")


def kind_of(dtype):
    """Returns the front end's words for a number of this dtype, of a library or of the IR."""
    return _KINDS.get(str(dtype).removeprefix("torch.").rstrip("0123456789"), "a value")


def _kind(dtype):
    """Returns the front end's words for a traced value."""
    return f"{kind_of(dtype)} that the GPU computes"


class Source:
    """The source of a mod. `parts` are what raised in a frame, the likeliest first, or else the definition of a function."""

    def __init__(self, name, lines, tree, scopes):
        self.name, self.tree, self.scopes = name, tree, scopes
        self.parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
        self.starts = [0, *itertools.accumulate(len(line.encode()) for line in lines)]
        self.bytes, self.parts = "".join(lines).encode(), ()

    @classmethod
    def _of_file(cls, name, scopes):
        lines = linecache.getlines(name, scopes[1])
        try:
            tree = ast.parse("".join(lines))
        except (SyntaxError, ValueError):
            return None
        return cls(name, lines, tree, scopes)

    @classmethod
    def of(cls, traceback):
        """Returns the source of the line that raised. None: it is not known."""
        frame, place = traceback.tb_frame, (None,) * 4
        source = cls._of_file(frame.f_code.co_filename, (frame.f_locals, frame.f_globals, frame.f_builtins))
        if source is None:
            return None
        if hasattr(frame.f_code, "co_positions"):
            place = next(itertools.islice(frame.f_code.co_positions(), traceback.tb_lasti // 2, None))
        first, last, start, end = place
        if None in place:  # as in Python 3.10
            line = traceback.tb_lineno
            source.parts = [x for x in ast.walk(source.tree) if isinstance(x, ast.expr) and x.lineno <= line <= x.end_lineno]
        else:
            around = [x for x in ast.walk(source.tree) if hasattr(x, "lineno") and _covers(x, (first, start), (last, end))]
            source.parts = around[-1:]
        return source

    @classmethod
    def of_function(cls, function, *others):
        """Returns the source of a function. None: it is not known, or in one of the folders `others`."""
        code = code_of(function)
        if code is None or is_ours(code.co_filename, others):
            return None
        source = cls._of_file(code.co_filename, ({}, {}))
        if source is None:
            return None
        found = [x for x in ast.walk(source.tree) if isinstance(x, (ast.FunctionDef, ast.Lambda)) and _is_of(x, code)]
        if len(found) > 1 and hasattr(code, "co_positions"):  # lambdas of one line
            places = {(first, start, last, end) for first, last, start, end in code.co_positions()}
            found = [x for x in found if isinstance(x, ast.Lambda) and _place(x.body) in places]
        source.parts = found
        return source if len(found) == 1 else None

    def returned(self):
        """Returns the expression that the function returns; the function itself if it has none, or several."""
        (function,) = self.parts
        if isinstance(function, ast.Lambda):
            return function.body
        found, left = [], list(function.body)
        while left:
            node = left.pop()
            if isinstance(node, ast.Return):
                found.append(node.value)
            elif not isinstance(node, (ast.FunctionDef, ast.Lambda, ast.ClassDef)):
                left += ast.iter_child_nodes(node)
        return found[0] if len(found) == 1 and found[0] is not None else function

    def place(self, node, has_parentheses=True):
        """Returns the range of a node in bytes, with parentheses around it that are not those of a call."""
        begin = self.starts[node.lineno - 1] + node.col_offset
        end = self.starts[node.end_lineno - 1] + node.end_col_offset
        call = self.parents.get(node)
        is_argument = isinstance(call, ast.Call) and node is not call.func
        of_call = self.bytes.index(b"(", self.place(call.func)[1]) if is_argument else -1
        while has_parentheses:
            before, behind = self.bytes[:begin].rstrip(), self.bytes[end:].lstrip()
            if not before.endswith(b"(") or not behind.startswith(b")") or len(before) - 1 == of_call:
                break
            begin, end = len(before) - 1, len(self.bytes) - len(behind) + 1
        return begin, end

    def text(self, node, has_parentheses=True):
        begin, end = self.place(node, has_parentheses)
        return " ".join(self.bytes[begin:end].decode().split())

    def short(self, node, otherwise):
        text = self.text(node)
        return text if len(text) <= _MOST_QUOTED else otherwise

    def is_bare(self, node):
        return self.place(node) == self.place(node, False)

    def value_of(self, node):
        """Returns what a name, or a name of a module, means. None: it is unknown."""
        if isinstance(node, ast.Name):
            return next((scope[node.id] for scope in self.scopes if node.id in scope), None)
        owner = self.value_of(node.value) if isinstance(node, ast.Attribute) else None
        return getattr(owner, node.attr, None) if isinstance(owner, types.ModuleType) else None

    def rendered(self, node, message, hint, severity="error"):
        begin, end = self.place(node)
        if isinstance(node, ast.FunctionDef):
            begin += len("def ")
            end = begin + len(node.name.encode())
        number = bisect.bisect(self.starts, begin)
        line, start = self.bytes[self.starts[number - 1] : self.starts[number]].rstrip(b"\r\n"), self.starts[number - 1]
        end = begin + len("assert") if isinstance(node, ast.Assert) else end
        where = f"{self.name}:{number}:{begin - start + 1}"
        return rendered(where, severity, message, hint, line.decode(), begin - start, end - start)


def _place(node):
    return node.lineno, node.col_offset, node.end_lineno, node.end_col_offset


def _is_of(node, code):
    """Whether a definition has the code's name, line and parameters."""
    first = min([node.lineno, *(x.lineno for x in getattr(node, "decorator_list", ()))])
    parameters = [x.arg for x in (*node.args.posonlyargs, *node.args.args)]
    return (getattr(node, "name", "<lambda>"), first, parameters) == (
        code.co_name, code.co_firstlineno, list(code.co_varnames[: code.co_argcount])
    )  # fmt: skip


def _covers(node, begin, end):
    return (node.lineno, node.col_offset) <= begin and end <= (node.end_lineno, node.end_col_offset)


def _finding(source, node, kind, door):
    """Returns (id, holes, place, hint) for the part that asked. A hint of None is the id's own."""
    if isinstance(node, _WITH_TEST):
        node = node.test
    if _is_chain(node):
        signs = {_SIGNS[type(x.op)] for x in _bare_bits(source, node)}
        if signs:
            read = _compared(node, lambda x: f"({source.text(x)})" if x in _bare_bits(source, node) else source.text(x))
            return "comparison-precedence", (" and ".join(sorted(signs)), read, _meant(source, node)), node, None
    if isinstance(node, ast.Call) and node.args:
        return _of_function(source, node, kind, door)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _OF_NUMBERS:
        return "expected-number", (f".{node.func.attr}()", kind), node, _MEANT.format(source.text(node.func.value))
    if isinstance(node, (ast.BinOp, ast.Compare)):
        for operand in ast.iter_child_nodes(node):
            value = source.value_of(operand) if _is_array(source, operand) else None
            if value is not None:
                return "array-result", (f"an array of shape {value.shape}",), operand, None
    if isinstance(node, ast.Subscript):
        is_list = isinstance(node.value, ast.List) or type(source.value_of(node.value)) is list
        is_tuple = isinstance(node.value, ast.Tuple) or type(source.value_of(node.value)) is tuple
        if is_list or is_tuple:
            return "traced-list-index", ("a list" if is_list else "a tuple",), node, None
        hint = "capture the values, and index them: `" + f"{door.name}.{door.array}({{}})[{source.text(node.slice)}]`"
        if _is_array(source, node.value):
            return "traced-list-index", ("an array of NumPy",), node, hint.format(source.text(node.value))
        if isinstance(node.value, ast.Dict) or isinstance(source.value_of(node.value), dict):
            key = source.value_of(node.slice)
            return "bad-key", (_kind(key.dtype) if hasattr(key, "dtype") else kind,), node, hint.format("[...]")
    while isinstance(source.parents.get(node), ast.BoolOp) or _is_not(source.parents.get(node)):
        node = source.parents[node]
    holder = source.parents.get(node)
    if isinstance(holder, ast.Assert) and node is holder.test:
        return "traced-assertion", (kind.removesuffix(" that the GPU computes"),), holder, None
    meant = _meant(source, node)
    if isinstance(holder, _WITH_TEST) and node is holder.test or node in getattr(holder, "ifs", ()):
        meant, branches = meant if len(meant) <= _MOST_QUOTED else "condition", "a, b"
        if isinstance(holder, ast.IfExp):
            branches = f"{source.short(holder.body, 'a')}, {source.short(holder.orelse, 'b')}"
        return "traced-condition", (kind, meant, branches), node, None
    if isinstance(node, ast.BoolOp) or _is_not(node) or _is_chain(node) or _members(source, node):
        hint = WORDS["traced-condition"][1].replace("torch.where({1}, {2})", meant)
        return "traced-condition", (kind,), node, hint
    return None


def _of_function(source, call, kind, door):
    """Returns the finding for a function of Python that was given a traced value."""
    function = source.value_of(call.func)
    owner = getattr(function, "__module__", None) or type(function).__module__
    library, name, text = owner.split(".")[0], getattr(function, "__name__", ""), source.text(call.func)
    instead = f"{door.name}.{name}" if hasattr(door.module, name) else ""
    operand = source.text(call.args[0], False)
    if library == "numpy" and instead:
        return "unknown-member", (library, name), call.func, _MEANT.format(instead)
    if function is range:
        return "traced-loop", (kind, source.text(call.args[1 if len(call.args) > 1 else 0], False)), call, None
    if function in (max, min):
        return "traced-condition", (kind,), call, _MEANT.format(f"{door.name}.{name}imum")
    if function in (any, all):
        return "traced-condition", (kind,), call, f"join the conditions by `{'|' if function is any else '&'}`"
    if function is bool and kind.startswith("a bool"):
        instead = operand
    elif function in (int, float, bool):
        conversion = door.conversions[name]
        if conversion.startswith("{") and not isinstance(call.args[0], (ast.Name, ast.Attribute, ast.Call, ast.Subscript)):
            operand = f"({operand})"
        instead = conversion.format(operand)
    elif library != "math":
        return None
    return "expected-number", (text, kind), call, _MEANT.format(instead) if instead else None


def _is_array(source, node):
    """Whether this is an array of NumPy: a name for one, an element of it, or what a function of NumPy returns."""
    while isinstance(node, ast.Subscript):
        node = node.value
    if isinstance(node, ast.Call):
        owner = source.value_of(node.func.value) if isinstance(node.func, ast.Attribute) else None
        return getattr(owner, "__name__", "") == "numpy"
    value = source.value_of(node)
    return type(value).__module__ == "numpy" and hasattr(value, "shape")


def _members(source, node):
    """Returns the texts of what is looked through by `x in (1, 2)`. Empty: they are unknown, or this is something else."""
    if not isinstance(node, ast.Compare) or not isinstance(node.ops[0], (ast.In, ast.NotIn)) or len(node.ops) > 1:
        return ()
    if isinstance(node.comparators[0], (ast.List, ast.Tuple)):
        return [source.text(x) for x in node.comparators[0].elts]
    value = source.value_of(node.comparators[0])
    return [repr(x) for x in value] if isinstance(value, (list, tuple, range)) else ()


def _is_not(node):
    return isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)


def _is_chain(node):
    return isinstance(node, ast.Compare) and len(node.ops) > 1


def _bare_bits(source, chain):
    """Returns the `x & y` (or `|`, `^`) without parentheses between comparisons of a chain. If one of the comparisons that
    may be meant has two numerals, the author knows the precedence."""
    operands, found = [chain.left, *chain.comparators], []
    for before, bits, behind in zip(operands, operands[1:], operands[2:]):
        if _is_bits(source, bits):
            pairs = (before, bits.left), (bits.right, behind)
            if not any(all(isinstance(x, ast.Constant) for x in pair) for pair in pairs):
                found.append(bits)
    return found


def _is_bits(source, node):
    """Whether this is `x & y`, `x | y` or `x ^ y` without parentheses."""
    is_bits = isinstance(node, ast.BinOp) and isinstance(node.op, (ast.BitAnd, ast.BitOr, ast.BitXor))
    return is_bits and source.is_bare(node)


def mixed_bits(source):
    """Yields (comparison, sign, what it reads, what may be meant) for each `flag & a >= b` in a function, which reads
    `(flag & a) >= b`. Bits of a numeral are meant so."""
    for node in ast.walk(source.parts[0]):
        if not isinstance(node, ast.Compare) or len(node.ops) > 1:
            continue
        first, last, op = node.left, node.comparators[0], _SIGNS[type(node.ops[0])]
        for bits in (first, last):
            if not _is_bits(source, bits) or isinstance(bits.left, ast.Constant) or isinstance(bits.right, ast.Constant):
                continue
            sign, left, right = _SIGNS[type(bits.op)], source.text(bits.left), source.text(bits.right)
            read = _compared(node, lambda x: f"({source.text(x)})" if x is bits else source.text(x))
            if bits is first:
                meant = f"{left} {sign} ({right} {op} {source.text(last)})"
            else:
                meant = f"({source.text(first)} {op} {left}) {sign} {right}"
            yield node, sign, read, meant


def _compared(chain, text):
    signs = [_SIGNS[type(op)] for op in chain.ops]
    return " ".join([text(chain.left), *(f"{sign} {text(x)}" for sign, x in zip(signs, chain.comparators))])


def _meant(source, node, is_operand=False):
    """Returns a condition with `&`, `|` and `~` in place of what Python decides."""
    is_loose = source.is_bare(node) and (isinstance(node, (ast.Compare, ast.IfExp, ast.Lambda)) or _is_not(node))
    if isinstance(node, ast.BoolOp):
        found = (" & " if isinstance(node.op, ast.And) else " | ").join(_meant(source, x, True) for x in node.values)
        is_loose = True
    elif _is_not(node) and not isinstance(source.value_of(node.operand), bool):
        found, is_loose = f"~{_meant(source, node.operand, True)}", False
    elif _is_chain(node):
        bits, found, left, is_loose = _bare_bits(source, node), "", source.text(node.left), True
        for op, right in zip(node.ops, node.comparators):
            ends = (right.left, right.right) if right in bits else (right, right)
            found += f"({left} {_SIGNS[type(op)]} {source.text(ends[0])})"
            left = source.text(ends[1])
            if right is not node.comparators[-1]:
                found += f" {_SIGNS[type(right.op)] if right in bits else '&'} "
    elif members := _members(source, node):
        equal, join = ("==", " | ") if isinstance(node.ops[0], ast.In) else ("!=", " & ")
        found, is_loose = join.join(f"({source.text(node.left)} {equal} {x})" for x in members), len(members) > 1
    else:
        found = source.text(node)
    return f"({found})" if is_operand and is_loose else found
