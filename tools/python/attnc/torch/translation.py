"""Translates callables to IR text: traces them, translates their graphs, and caches the result."""

import inspect
import threading
import typing

import torch

from .. import _arrays
from .._arrays import Array, Lowering, ir_type
from .._diagnostics import kind_of, of_result
from .._ir_text import DIMS, Builder, Capture, Program, halves, params_of
from .._suspicions import warn_of
from ..mod import Mod
from ..prob_mods import functions_of, joined, parts
from .aten import HANDLERS
from .errors import UntranslatableError
from .guards import describe
from .mistakes import TORCH
from .tracing import number_of, trace

DTYPE_NAMES = {getattr(torch, name): short for name, short in _arrays.DTYPE_NAMES.items()}
_MOST_KEPT, _MOST_GRIDS = 1024, 32


class _Graphs:
    """Translates the graphs of a score_mod and a mask_mod into one program."""

    def __init__(self, description, device, stand_ins=None):
        self.builder = Builder()
        self.low = Lowering(self.builder)
        self.device = device
        self.place_of = {id(tensor): place for place, tensor in enumerate(description.tensors)}
        self.hints = description.names
        self.captures = {}  # id of a tensor -> Array
        self.sources = []  # by capture: the tensor's place in the description, or the tensor itself
        self.is_complete = True  # whether the walk found all tensors
        self.asked, self.codes = set(), {}  # places of tensors whose numbers the mods read, and the code that ran
        self.stand_ins, self.sizes = stand_ins, []

    # ---- Captures ----

    def captured(self, tensor, is_table):
        found = self.captures.get(id(tensor))
        if found is not None:
            return found
        place = self.place_of.get(id(tensor))
        hint = self.hints[place] if place is not None else "table" if is_table else "captured"
        if tensor.dtype not in DTYPE_NAMES:
            instead = f"{hint}.real and {hint}.imag" if tensor.is_complex() else f"{hint}.float()"
            raise UntranslatableError(
                f"the mod captures `{hint}`, a tensor of {tensor.dtype}, in which attnc does not compute: "
                f"capture {instead} instead"
            )
        if tensor.layout != torch.strided or tensor.dim() > 6:
            raise UntranslatableError(
                f"the mod captures `{hint}`, which has {tensor.dim()} dims and layout {tensor.layout}: "
                "attnc reads strided tensors of at most 6 dims"
            )
        if tensor.device != self.device and tensor.dim() != 0:
            raise UntranslatableError(
                f"the mod captures `{hint}` on {tensor.device}, the operands are on {self.device}: "
                f"capture {hint}.to('{self.device}') instead"
            )
        if is_table and tensor.dim() == 0:
            return self._constant(tensor)
        by_value = tensor.device != self.device
        dtype = ir_type(tensor.dtype) if by_value else DTYPE_NAMES[tensor.dtype]
        self.is_complete = self.is_complete and (place is not None or is_table)

        def declared(name, dtype, half=None):
            self.sources.append(place if place is not None else tensor)
            return Capture(name, dtype, tuple(tensor.shape), by_value, half)

        if by_value and dtype == "i64":
            parts = declared(hint, "i32", 0), declared(f"{hint}_high", "i32", 1)
            value = self.builder.joined(*map(self.builder.capture, parts))
            result = Array(tensor, (), lambda indices: value)
        else:
            result = self.low.captured(tensor, declared(hint, dtype))
        result = self.captures[id(tensor)] = self._table(tensor, result) if is_table else result
        return result

    def _constant(self, tensor):
        type, number = ir_type(tensor.dtype), tensor.item()
        return Array(tensor, (), lambda indices: self.builder.const(number, type))

    def _table(self, tensor, loaded):
        """Makes elements at known places constants."""
        type = loaded.type

        def element(indices):
            if all(index.is_const for index in indices):
                return self.builder.const(tensor[tuple(map(self.builder.number, indices))].item(), type)
            return loaded.at(indices)

        return Array(tensor, loaded.extents, element)

    def _size(self, stands_for, tensor, axis):
        extent = self.captured(tensor, False).extents[axis]
        return Array(stands_for, (), lambda indices: self.low.size(extent, "i64"))

    # ---- Graphs ----

    def value_of(self, function, what):
        """Returns the value that the mod returns."""
        graph, asked, codes, sizes = trace(function, what, self.device, self.stand_ins)
        self.codes.update(codes)
        self.sizes += sizes.known
        places = {self.place_of.get(id(tensor)) for tensor in asked}
        self.is_complete = self.is_complete and None not in places
        self.asked |= places - {None}
        params = iter(params_of(what))
        values, views = {}, {}
        for node in graph.graph.nodes:
            if node.op == "placeholder":
                param = self.builder.param(next(params))
                param = self.builder.cast(param, ir_type(node.meta["val"].dtype))
                values[node] = Array(node.meta["val"], (), lambda indices, param=param: param)
            elif node.op == "get_attr":
                tensor = getattr(graph, node.target)
                of_table = torch.ops.aten.lift_fresh_copy.default, torch.ops.aten.lift_fresh.default
                is_table = all(user.target in of_table for user in node.users)
                if id(tensor) in sizes.axes:
                    values[node] = self._size(*sizes.axes[id(tensor)])
                    continue
                values[node] = self.captured(tensor, is_table and id(tensor) not in self.place_of)
            elif node.op == "call_function":
                try:
                    self._check_writes(node, views)
                    values[node] = self._call(node, values, what)
                except UntranslatableError as error:
                    place = self._line_of(node, function, what)
                    raise UntranslatableError(f"{place}: {error}" if place else str(error)) from None
            elif node.op == "output":
                return self._result(torch.fx.map_arg(node.args[0], values.get), function, what)
        raise AssertionError("a graph without an output")

    def _line_of(self, node, function, what):
        """Returns "file:line" of a node, from a second trace. Empty or None if it is unknown."""
        graph, *_ = trace(function, what, self.device, self.stand_ins, with_lines=True)
        return next((x.stack_trace for x in graph.graph.nodes if (x.name, x.target) == (node.name, node.target)), "")

    def _result(self, result, function, what):
        if isinstance(result, bool) or isinstance(result, (int, float)) and what != "mask_mod":
            value = self.builder.const(result, "bool" if isinstance(result, bool) else "f32")
            result = Array(None, (), lambda indices: value)
        if isinstance(result, Array):
            return self.low.result(function, what, result, "a tensor")
        if result is None:
            raise of_result(function, what, "returns-none")
        name = type(result).__name__
        found = kind_of(name) if name in ("int", "float") else f"a {name}"
        raise of_result(function, what, "mask-result" if what == "mask_mod" else "score-result", found)

    def _call(self, node, values, what):
        name = _name_of(node.target)
        if name == "getitem":
            return values[node.args[0]][node.args[1]]
        handler = HANDLERS.get(name) or HANDLERS.get(name.removesuffix("_"))
        args, kwargs = torch.fx.map_arg((node.args, node.kwargs), lambda n: values[n])
        if handler is None or not _takes(handler, args, kwargs):
            form = " with these arguments" if handler else ""
            raise UntranslatableError(
                f"{what} uses {node.target}{form}, which attnc cannot translate. Compute it outside of the mod and "
                "capture the result, or write it with arithmetic, comparisons, torch.where and indexing"
            )
        try:
            return handler(self.low, node.meta["val"], *args, **kwargs)
        except UntranslatableError as error:
            raise UntranslatableError(f"{what}, {node.target}: {error}") from None

    def _check_writes(self, node, views):
        """Writes into the mod's own tensors are ordinary values, unless a view would see them."""
        name = _name_of(node.target)
        schema = getattr(node.target, "_schema", None)
        if schema is None:
            return
        source = node.args[0] if node.args and isinstance(node.args[0], torch.fx.Node) else None
        if schema.is_mutable:
            if source is None or source.op == "get_attr" or source in views or source in views.values():
                raise UntranslatableError(
                    f"the mod writes into a tensor ({node.target}): a mod is a pure function; use the value that "
                    f"{name.removesuffix('_')} returns"
                )
        elif source is not None and any(argument.alias_info is not None for argument in schema.arguments):
            views[node] = source


def _takes(handler, args, kwargs):
    try:
        inspect.signature(handler).bind(None, None, *args, **kwargs)
    except TypeError:
        return False
    return True


def _name_of(target):
    packet = getattr(target, "overloadpacket", None)
    return (packet or target).__name__


# ---- What is kept -----------------------------------------------------------------------------------------------


class _Entry:
    """A traced pair of mods, with its plans: one for each way in which extents of tensors equal those of q and k."""

    def __init__(self, graphs, outputs, alive):
        # Not the graphs themselves, because they own the tensors that were captured first.
        self.builder, self.sources, self.is_complete = graphs.builder, graphs.sources, graphs.is_complete
        self.asked, self.codes, self.sizes = graphs.asked, graphs.codes, graphs.sizes
        self.outputs, self.alive = outputs, alive
        self.plans = {}  # problem -> _Plan

    def plan(self, problem):
        plan = self.plans.get(problem)
        if plan is None or plan.skeleton.version != plan.version:
            program = self.program(problem)
            program.check(dict(zip(DIMS, problem)), {capture.name: capture.shape for capture in program.captures})
            plan = self.plans[problem] = _Plan(program, self.sources)
        return plan

    def program(self, problem):
        return Program(self.builder, self.outputs, dict(zip(DIMS, problem)))


class _Plan:
    """The text of a program, and the sources of its captures."""

    def __init__(self, program, sources):
        self.check = program.check
        self.skeleton = _skeletons.setdefault(program.skeleton, _Skeleton(program))
        given = self.skeleton.meet(program)
        self.version, self.text, self.numbers = self.skeleton.version, program.text(*given), program.scalars(*given)
        self.tensors, self.scalars = [], []  # (name, place among the captured tensors, or the tensor itself)
        for index, capture in zip(program.place, program.captures):
            (self.scalars if capture.is_scalar else self.tensors).append((capture.name, sources[index], capture))


class Translation:
    """A translated mod. `text` is IR text, one object for equal programs. `captured` are the tensors that functions hold."""

    # `is_kept`: whether functions of the same code, that hold the same numbers, have the same translation.
    __slots__ = ("plan", "captured", "is_kept")

    def __init__(self, plan, captured, is_kept=False):
        self.plan, self.captured, self.is_kept = plan, captured, is_kept

    @property
    def text(self) -> str:
        return self.plan.text

    @property
    def mod(self) -> Mod:
        """The mod of this text. Notebooks show the picture of its mask, and attnc.explain() its kernel."""
        return Mod.parse_ir(f'source "<torch>"\n{self.text}')

    def given(self):
        """Returns (text, tensors, scalars)."""
        plan, captured = self.plan, self.captured
        tensors = {name: captured[at] if type(at) is int else at for name, at, _ in plan.tensors} if plan.tensors else {}
        return plan.text, tensors, self.scalars if plan.scalars else plan.numbers

    def _tensor(self, source):
        return self.captured[source] if type(source) is int else source

    @property
    def tensors(self) -> dict[str, torch.Tensor]:
        """Captured tensors by name."""
        return self.given()[1]

    @property
    def scalars(self) -> dict[str, typing.Any]:
        """Run-time scalars by name: numbers that changed between calls, and 0-d tensors of another device."""
        found = dict(self.plan.numbers)
        for name, source, capture in self.plan.scalars:
            tensor = self._tensor(source)
            if tensor.requires_grad and torch.is_grad_enabled():
                raise UntranslatableError(
                    f"the mod captures `{name}` on {tensor.device}, which requires a gradient: move it to the "
                    "device of the operands"
                )
            number = tensor.item()
            found[name] = number if capture.half is None else halves(number)[capture.half]
        return found


class _Skeleton:
    """Programs that differ only in numbers. A number that changed once is given at launch, so that a change compiles
    once more and then never again. Numbers of a grid stay constants, for the first grids."""

    def __init__(self, program):
        self.first, self.version, self.grids = program, 0, set()
        self.varying = self.wide = frozenset()  # `wide`: places of those that were beyond 32 bits

    def meet(self, program):
        """Returns (places of the numbers that are given at launch, `wide`)."""
        grid = tuple(program.numbers[place] for place in sorted(program.of_grids))
        if len(self.grids) < _MOST_GRIDS:
            self.grids.add(grid)
        constant = program.of_grids if grid in self.grids else frozenset()
        differ = {place for place, (a, b) in enumerate(zip(self.first.numbers, program.numbers)) if a != b}
        varying = self.varying | (differ - program.of_grids)
        given = varying | (program.of_grids - constant)
        wide = self.wide | {place for place in given if program.is_wide(place) or self.first.is_wide(place)}
        if (varying, wide) != (self.varying, self.wide):
            self.varying, self.wide = varying, wide
            self.version += 1
        return given, wide


class _Looks(typing.NamedTuple):
    """What tracing found about functions beyond their code: `names` of attributes, and `places` of tensors whose
    numbers the mods read, in a description with these names."""

    names: frozenset = frozenset()
    places: tuple = ()

    def key(self, first, description):
        """Returns the key of functions with these looks, from their key without. None: nothing may be kept."""
        if description.key is None:
            return None
        numbers = tuple(number_of(description.tensors[place]) for place in self.places)
        return first, description.key, self, numbers


_NOWHERE = _Looks()
# By key of a description: the entry; or the looks, which make the keys under which entries are found.
_entries, _skeletons = {}, {}
_lock = threading.RLock()


def translate(
    score_mod: typing.Callable[..., typing.Any] | None = None, mask_mod: typing.Callable[..., typing.Any] | None = None, *,
    prob_mod: typing.Callable[..., typing.Any] | None = None,
    sink_mod: typing.Callable[..., typing.Any] | None = None,
    weight_mod: typing.Callable[..., typing.Any] | None = None, device: str | torch.device = "cpu", problem: tuple[int, ...] = (),
    outputs: typing.Mapping[str, typing.Any] | None = None,
) -> Translation:  # fmt: skip
    """Translates a score_mod and a mask_mod of FlexAttention, a prob_mod, a sink_mod and a weight_mod, into a mod of attnc.

    `outputs` maps names to attnc.reduce_sum(f, axes) or reduce_max. `problem` is (B, H, HKV, Q_LEN, KV_LEN) of the call. If an axis of a captured tensor has one of these extents and
    the matching position indexes it, the axis is declared with that extent by name, so that it may change. `device` is
    that of q, k and v. Functions are not traced again if their code, their numbers, and the shapes and dtypes of their
    tensors are known. Raises UntranslatableError.
    """
    score_mod = joined(score_mod, prob_mod, sink_mod, weight_mod)
    reduced = functions_of(outputs)
    functions = [function for function in (score_mod, mask_mod, *reduced.values()) if function is not None]
    description = describe(*functions)
    first = key = description.key
    if key is not None:  # a device and its name give two entries
        first = key = score_mod is None, mask_mod is None, tuple(reduced), device, key
    with _lock:
        entry, looks = _entries.get(key) if key is not None else None, _NOWHERE
        if type(entry) is _Looks:
            looks = entry
            if looks.names:
                description = describe(*functions, names=looks.names)
            key = looks.key(first, description)
            entry = _entries.get(key)
        if entry is None:
            entry, looks, description = _looked_and_traced(
                score_mod, mask_mod, reduced, description, looks, torch.device(device)
            )  # fmt: skip
            if first is not None and entry.is_complete:
                if len(_entries) >= _MOST_KEPT:
                    _entries.clear()
                    _skeletons.clear()
                if looks is not _NOWHERE:
                    key, _entries[first] = looks.key(first, description), looks
                if key is not None:
                    _entries[key] = entry
        # Extents of the problem only count if tensors may have them.
        is_kept = first is not None and entry.is_complete and looks is _NOWHERE
        return Translation(entry.plan(problem if description.tensors else ()), description.tensors, is_kept)


def _looked_and_traced(score_mod, mask_mod, reduced, description, looks, device):
    """Returns (entry, looks, description with these looks)."""
    while True:
        entry = _traced(score_mod, mask_mod, description, device, None, reduced)
        missed = description.missed(entry.codes)
        names = looks.names.union(code.co_name for code in missed if code.co_name.isidentifier())
        if names == looks.names:
            break
        looks = _Looks(names)
        functions = (score_mod, mask_mod, *reduced.values())
        description = describe(*[function for function in functions if function is not None], names=names)
    entry.is_complete = entry.is_complete and not missed
    if not entry.asked.issubset(looks.places):
        looks = looks._replace(places=tuple(sorted(entry.asked.union(looks.places))))
    return entry, looks, description


class _Given:
    """A description made of known tensors."""

    def __init__(self, tensors, names):
        self.tensors, self.names, self.alive = tensors, names or ["captured"] * len(tensors), []


def translate_traced(score_mod, mask_mod, tensors, names=None, stand_ins=None, reduced=None):
    """Returns what plan_of() takes, of mods over tensors on the CPU, which replace others, by place or as for trace().
    `reduced`: those of functions_of()."""
    with _lock:
        return _traced(score_mod, mask_mod, _Given(tensors, names), torch.device("cpu"), stand_ins or {}, reduced)


def plan_of(entries, problems):
    """Returns the plan of mods that were translated for each of some problems, with tensors of other extents. Extents
    that differ are free. None: the mods depend on them in another way, or got other sizes as numbers."""
    with _lock:
        programs = [entry.program(problem) for entry, problem in zip(entries, problems)]
        first = programs[0]
        for other, entry in zip(programs[1:], entries[1:]):
            if other.skeleton != first.skeleton or entry.sizes != entries[0].sizes:
                return None
            found = zip(first.numbers, other.numbers, first.number_types)
            if any(a != b and type != "extent" for a, b, type in found):
                return None
        return [_Plan(program, entries[0].sources) for program in reversed(programs)][-1]


def together(mask_mods):
    """Returns (Builder, values) of mask_mods that are translated into one program, where a captured tensor has one name."""
    description = describe(*mask_mods)
    device = next((tensor.device for tensor in description.tensors if tensor.dim()), torch.device("cpu"))
    graphs = _Graphs(description, device)
    return graphs.builder, [graphs.value_of(mask_mod, "mask_mod") for mask_mod in mask_mods]


def _traced(score_mod, mask_mod, description, device, stand_ins=None, reduced=None):
    graphs, outputs = _Graphs(description, device, stand_ins), {}
    names = ("score_mod", "prob_mod", "sink_mod", "weight_mod")
    mods = {**dict(zip(names, parts(score_mod))), "mask_mod": mask_mod}
    given = {what: mod for what, mod in mods.items() if mod is not None}
    for what, mod in given.items():
        outputs[what.removesuffix("_mod")] = graphs.value_of(mod, what)
    for name, function in (reduced or {}).items():
        outputs[name] = graphs.value_of(function, "output")
    for what, mod in given.items():
        warn_of(mod, what, outputs[what.removesuffix("_mod")], graphs.builder.nodes, TORCH)
    return _Entry(graphs, outputs, description.alive)


def parsed(score_mod, mask_mod, device, problem, outputs=None):
    """Returns (Mod, captures, captured tensors) of mods for operands of these sizes. `captures` are on the CPU."""
    text, tensors, scalars = translate(score_mod, mask_mod, device=device, problem=problem, outputs=outputs).given()
    captures = {name: tensor.detach().cpu() for name, tensor in tensors.items()}
    name = getattr(parts(score_mod)[0] or mask_mod, "__name__", "")
    if name.isidentifier() and not text.startswith("source "):
        text = f'source "{name}"\n{text}'
    return Mod.parse_ir(text, name="<torch>"), {**captures, **scalars}, tensors
