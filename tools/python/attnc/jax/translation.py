"""Translates functions of jax.numpy to IR text: traces them to jaxprs, and translates these."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.errors import ConcretizationTypeError, TracerArrayConversionError, TracerIntegerConversionError
from jax.extend.core import Literal

from .._arrays import DTYPE_NAMES, Array, Lowering, ir_type
from .._diagnostics import Door, asked, held_by, of_call, of_result
from .._ir_text import DIMS, EXTENT_OF_PARAM, Capture, Program, params_of
from .._suspicions import warn_of
from ..errors import UntranslatableError
from ..prob_mods import functions_of
from .integers import IntegerBuilder
from .operations import check_operation, searched

# Primitives that call a jaxpr: the name of its parameter.
_CALLS = {"jit": "jaxpr", "remat2": "jaxpr"}
_CALLS |= dict.fromkeys(("closed_call", "custom_jvp_call", "custom_vjp_call"), "call_jaxpr")
_MOST_ROUNDS = 64  # of a loop
_DOOR = Door(
    "jnp", jnp, "array", {"int": "jnp.int32({})", "float": "jnp.float32({})", "bool": "{} != 0"}, (*jax.__path__, *np.__path__)
)  # fmt: skip


def _arguments_of(what):
    """Returns what stands for the arguments of a mod."""
    return [jax.ShapeDtypeStruct((), jnp.float32 if name in ("prob", "score") else jnp.int32) for name in params_of(what)]


def check_sizes(name, shape):
    """Raises ValueError for symbolic sizes."""
    symbols = [str(size) for size in shape if not isinstance(size, int)]
    if symbols:
        raise ValueError(
            f"{name} has a size `{symbols[0]}` without a number: kernels are made for given sizes. Export one program "
            "for each length that you need, and pad to the next of them with a mask_mod that hides the padding"
        )


class Traced:
    """A mod as a jaxpr, with its name in IR text. Its first variables are captured arrays: `places` are theirs among all
    captured arrays. `inner` has the places of those that functions called by the mod hold, by id."""

    def __init__(self, what, name, jaxpr, places, inner, function):
        self.what, self.name, self.jaxpr, self.places, self.inner, self.function = what, name, jaxpr, places, inner, function
        self.variables = [*jaxpr.constvars, *jaxpr.invars]
        if len(jaxpr.outvars) != 1:
            found = ("mask-result" if what == "mask_mod" else "score-result", "a tuple") if jaxpr.outvars else ("returns-none",)
            raise of_result(function, what, *found)

    @classmethod
    def of(cls, what, function, captured, name=None):
        """Traces a function. Adds arrays that it meets first to `captured`, a Captured. `name`: of an output."""
        # Within a function of its own, because JAX keeps the traces of functions, and captured arrays may change.
        try:
            closed = jax.make_jaxpr(lambda *args: function(*args))(*_arguments_of(what))
        except (ConcretizationTypeError, TracerArrayConversionError, TracerIntegerConversionError) as error:
            dtype = re.search(r"\b(bool|u?int|b?float)\d*\[", str(error))
            raise asked(function, error, dtype and dtype[1], _DOOR) from error
        except TypeError as error:
            found = of_call(function, error, what)
            if "unhashable type" in str(error) and "Tracer" in str(error):
                found = asked(function, error, None, _DOOR)
            if found is None:
                raise
            raise found from None
        places = tuple(captured.place(value) for value in closed.consts)
        name = name or what.removesuffix("_mod")
        return cls(what, name, closed.jaxpr, places, {id(x): captured.place(x) for x in _held_inside(closed.jaxpr)}, function)

    def batched(self, batch, is_batched, avals):
        """Returns the mod of a batch of `batch` entries each, one after another. Captured arrays at places where
        `is_batched` have a first axis for the outer batch. `avals` are all captured arrays'."""

        def mod(captured, *args):
            at = params_of(self.what).index("b")
            b = args[at]
            outer, inner = lax.div(b, jnp.int32(batch)), lax.rem(b, jnp.int32(batch))
            captured = [
                lax.dynamic_index_in_dim(array, outer, keepdims=False) if is_batched[place] else array
                for place, array in zip(self.places, captured)
            ]
            values, count = [*captured, *args[:at], inner, *args[at + 1 :]], len(self.jaxpr.constvars)
            return jax.core.eval_jaxpr(self.jaxpr, values[:count], *values[count:])[0]

        held = [jax.ShapeDtypeStruct(avals[place].shape, avals[place].dtype) for place in self.places]
        closed = jax.make_jaxpr(mod)(held, *_arguments_of(self.what))
        return Traced(self.what, self.name, closed.jaxpr, self.places, self.inner, self.function)


def _computed(aval):
    """Returns the aval that a value is computed as. Under jax_enable_x64, Python numbers and what follows from integers
    are float64 of a weak type: f32 here, as without it."""
    is_weak = getattr(aval, "dtype", None) == "float64" and aval.weak_type
    return aval.update(dtype=jnp.dtype("float32")) if is_weak else aval


def _held_inside(jaxpr):
    """Returns the arrays that a jaxpr holds as literals, and those that jaxprs called by it hold."""
    found = []
    for eqn in jaxpr.eqns:
        found += [atom.val for atom in eqn.invars if isinstance(atom, Literal) and atom.aval.shape]
        for value in eqn.params.values():
            for inner in value if isinstance(value, (list, tuple)) else [value]:
                if hasattr(inner, "eqns"):
                    found += [*getattr(inner, "consts", ()), *_held_inside(getattr(inner, "jaxpr", inner))]
    return found


class Captured:
    """The arrays that mods capture, each once, with names."""

    def __init__(self, functions):
        self.arrays, self.names = [], []
        self.known = {id(held): str(name) for name, held in held_by(functions) if hasattr(held, "dtype")}

    def place(self, array):
        for place, other in enumerate(self.arrays):
            if other is array:
                return place
        self.arrays.append(array)
        self.names.append(self.known.get(id(array), "captured"))
        return len(self.arrays) - 1


class _Translator:
    """Translates the jaxprs of mods into one program."""

    def __init__(self, names, problem):
        self.builder = IntegerBuilder({param: problem[name] for param, name in EXTENT_OF_PARAM.items()})
        self.low = Lowering(self.builder)
        self.hints = names
        self.captures, self.places = {}, []  # by place: Array; by capture: place
        self.inner, self.avals = {}, ()  # of the mod that is translated

    def captured(self, place):
        """Returns a captured array by its place."""
        found = self.captures.get(place)
        if found is not None:
            return found
        aval = self.avals[place]
        hint, name = self.hints[place], str(aval.dtype)
        check_sizes(f"the mod's captured array `{hint}`", aval.shape)
        if name not in DTYPE_NAMES:
            other = "int32" if name.startswith(("u", "int")) else "float32"
            raise UntranslatableError(
                f"the mod captures `{hint}`, an array of {name}, in which attnc does not compute: capture "
                f"{hint}.astype(jnp.{other}) instead"
            )
        if len(aval.shape) > 6:
            raise UntranslatableError(
                f"the mod captures `{hint}`, which has {len(aval.shape)} axes: attnc reads arrays of at most 6"
            )
        self.places.append(place)
        found = self.captures[place] = self.low.captured(aval, Capture(hint, DTYPE_NAMES[name], tuple(aval.shape)))
        return found

    def literal(self, value, aval):
        if id(value) in self.inner:
            return self.captured(self.inner[id(value)])
        aval = _computed(aval)
        type, number = ir_type(aval.dtype), value.item() if hasattr(value, "item") else value
        return Array(aval, (), lambda indices: self.builder.const(number, type))

    def value_of(self, traced, captured_avals):
        """Returns the value that the mod returns."""
        what, held = traced.what, len(traced.places)
        self.inner, self.avals = traced.inner, captured_avals
        args = [self.captured(place) for place in traced.places]
        for name, variable in zip(params_of(what), traced.variables[held:]):
            param = self.builder.param(name)
            args.append(Array(variable.aval, (), lambda indices, param=param: param))
        try:
            (result,) = self.run(traced.jaxpr, args, what)
        except _Placed as error:
            raise UntranslatableError(str(error)) from None
        return self.low.result(traced.function, what, result, "an array")

    def run(self, jaxpr, args, what):
        """Returns the results of a jaxpr. `args` are its constants and arguments."""
        known = dict(zip([*jaxpr.constvars, *jaxpr.invars], args))

        def read(atom):
            return self.literal(atom.val, atom.aval) if isinstance(atom, Literal) else known[atom]

        for eqn in jaxpr.eqns:
            try:
                results = self.results_of(eqn, [read(atom) for atom in eqn.invars], what)
            except UntranslatableError as error:
                raise _placed(error, eqn, what) from None
            known |= zip(eqn.outvars, results)
        return [read(atom) for atom in jaxpr.outvars]

    def results_of(self, eqn, args, what):
        name, params = eqn.primitive.name, eqn.params
        if params.get("name") == "_searchsorted_sort_impl":
            found = searched(self.low, _computed(eqn.outvars[0].aval), params["jaxpr"].jaxpr, *args)
            if found is not None:
                return [found]
        if name == "scan":
            return self.repeated(eqn, args, what)
        if name in _CALLS:
            return self.called(params[_CALLS[name]], args, what)
        if name == "cond":
            return self.branched(eqn, *args, what=what)
        if name == "optimization_barrier":
            return args
        out = _computed(eqn.outvars[0].aval)
        return [check_operation(name)(self.low, out, *args, **params)]

    def called(self, closed, args, what):
        consts = [self.literal(value, jax.typeof(value)) for value in getattr(closed, "consts", ())]
        return self.run(getattr(closed, "jaxpr", closed), [*consts, *args], what)

    def repeated(self, eqn, args, what):
        """Computes each round of a loop whose number of rounds is known."""
        params, rounds = eqn.params, eqn.params["length"]
        if rounds > _MOST_ROUNDS:
            raise UntranslatableError(
                f"uses lax.scan or lax.fori_loop of {rounds} rounds. At most {_MOST_ROUNDS} are translated: write sums "
                "as (...).sum() over an axis, or compute it outside of the mod and capture the result"
            )
        held, carried = params["num_consts"], params["num_carry"]
        consts, carry, over = args[:held], args[held : held + carried], args[held + carried :]
        given = [None] * rounds
        for number in reversed(range(rounds)) if params["reverse"] else range(rounds):
            at = self.low.index(number)
            slices = [
                self.low.array(x.meta, x.extents[1:], lambda indices, x=x, at=at: x.at((at, *indices)), x) for x in over
            ]
            results = self.called(params["jaxpr"], [*consts, *carry, *slices], what)
            carry, given[number] = results[:carried], results[carried:]
            for result in results:
                if not result.rank:
                    result.at(())  # now, so that rounds are not nested in one another
        stacked = [
            self.low.stacked(_computed(variable.aval), arrays, 0)
            for variable, *arrays in zip(eqn.outvars[carried:], *given)
        ]
        return [*carry, *stacked]

    def branched(self, eqn, which, *args, what):
        """Computes all branches and chooses."""
        cases = [self.called(branch, args, what) for branch in eqn.params["branches"]]
        results = []
        for variable, *arrays in zip(eqn.outvars, *cases):

            def element(indices, arrays=arrays):
                return self.builder.chosen(which.at(()), [functools.partial(x.at, indices) for x in arrays])

            results.append(self.low.array(_computed(variable.aval), variable.aval.shape, element, *arrays))
        return results


class _Placed(UntranslatableError):
    """Knows its text without the place. `has_place`: whether it tells file and line."""

    def __init__(self, text, where):
        super().__init__(where + text)
        self.text, self.has_place = text, bool(where)


def _placed(error, eqn, what):
    """Returns the error with the mod's name, and with the line of the operation, or of what called it."""
    if isinstance(error, _Placed) and error.has_place:
        return error
    frame = eqn.source_info.traceback and _user_frame(eqn.source_info.traceback)
    where = f"{frame.file_name}:{frame.start_line}: " if frame else ""
    if isinstance(error, _Placed):
        return _Placed(error.text, where)
    is_sentence = str(error).startswith(("uses ", "holds "))
    return _Placed(f"{what} {error}" if is_sentence else f"{what}, {eqn.primitive.name}: {error}", where)


def _user_frame(traceback):
    from jax._src import source_info_util

    return next(iter(source_info_util.user_frames(traceback)), None)


class Mods:
    """The mods of an attention, translated for a problem. They equal others of one text over arrays of one kind."""

    def __init__(self, traced, hints, avals, problem):
        """`traced` holds a Traced for each mod; `hints` and `avals` are names and avals of all captured arrays. `problem`
        is (B, H, HKV, Q_LEN, KV_LEN). Raises UntranslatableError, and IndexError for a captured array that is too
        short."""
        self.traced, self.hints, self.avals, self.problem = traced, hints, avals, problem
        sizes = dict(zip(DIMS, problem))
        translator, outputs = _Translator(hints, sizes), {}
        translator.builder.names.update(f"{mod.name.split('_', 3)[3]}_gradient" for mod in traced if mod.what == "output")
        for mod in traced:
            value = outputs[mod.name] = translator.value_of(mod, avals)
            if mod.what != "output":
                warn_of(mod.function, mod.what, value, translator.builder.nodes, *_DOOR.folders)
        program = Program(translator.builder, outputs, sizes)
        program.check(sizes, {capture.name: capture.shape for capture in program.captures})
        self.text = program.text()
        # Of the captured arrays that the program reads: names, and places among all.
        self.names = tuple(capture.name for capture in program.captures)
        self.places = tuple(translator.places[index] for index in program.place)
        self._key = self.text, self.names, self.places, problem

    @functools.cached_property
    def without_outputs(self):
        """The mods of the same attention that compute no outputs."""
        return Mods([mod for mod in self.traced if mod.what != "output"], self.hints, self.avals, self.problem)

    def batched(self, count, is_batched, avals):
        """Returns the mods of `count` such problems in one, along the batch. See Traced.batched()."""
        batch, *others = self.problem
        traced = [mod.batched(batch, is_batched, avals) for mod in self.traced]
        return Mods(traced, self.hints, avals, (count * batch, *others))

    def floats(self, captured):
        """Returns the places of the float arrays that the program reads, in order."""
        return [place for place in sorted(self.places) if jnp.issubdtype(captured[place].dtype, jnp.floating)]

    def __eq__(self, other):
        return isinstance(other, Mods) and self._key == other._key

    def __hash__(self):
        return hash(self._key)

    def __repr__(self):
        return f"<mods of {', '.join(self.names) or 'no captures'}>"


def translated(score_mod, mask_mod, prob_mod, sink_mod, weight_mod, outputs, problem):
    """Returns (Mods, the captured arrays)."""
    mods = {"score_mod": score_mod, "mask_mod": mask_mod, "prob_mod": prob_mod, "sink_mod": sink_mod, "weight_mod": weight_mod}
    given = [(what, mod) for what, mod in mods.items() if mod is not None]
    reduced = functions_of(outputs)
    captured = Captured([*(mod for _, mod in given), *reduced.values()])
    traced = [Traced.of(what, mod, captured) for what, mod in given]
    traced += [Traced.of("output", function, captured, name) for name, function in reduced.items()]
    arrays = [jnp.asarray(array) for array in captured.arrays]
    return Mods(traced, tuple(captured.names), [jax.typeof(array) for array in arrays], problem), arrays


def together(mask_mods):
    """Returns (IntegerBuilder, values) of mask_mods in one program, where a captured array has one name."""
    captured = Captured(mask_mods)
    traced = [Traced.of("mask_mod", mask_mod, captured) for mask_mod in mask_mods]
    avals = [jax.typeof(jnp.asarray(array)) for array in captured.arrays]
    translator = _Translator(tuple(captured.names), dict.fromkeys(DIMS, 1 << 24))  # the most of a launch
    return translator.builder, [translator.value_of(one, avals) for one in traced]
