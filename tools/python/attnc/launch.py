"""What every door of Python hands on: how an attention is launched."""

import collections
import dataclasses
import numbers
import typing
from ctypes import POINTER, byref, c_size_t, c_void_p

from . import _spec as c
from ._library import Handle, check, compiler, library

# The optional tensors of c.Operands.
OPTIONAL = [name for name, kind in c.Operands._fields_ if kind is POINTER(c.Tensor) and name not in ("q", "k", "v")]
Sequences = collections.namedtuple(
    "Sequences", [*OPTIONAL, "max_q_len", "max_kv_len"], defaults=[None] * len(OPTIONAL) + [0, 0]
)  # fmt: skip
Sequences.__doc__ = """Where rows of q, k and v belong, by the names of c.Operands. Tensors are on the device of q, and i32.

Either `kv_lengths` [B] of a cache, where queries stand at the last keys unless `q_offsets` [B] say otherwise; or
`cu_seqlens_q` and `cu_seqlens_kv` [B + 1], the cumulative lengths of a ragged batch, with the longest lengths (0:
unknown). With `page_table` [B, N], which needs kv_lengths, k and v are pools [pages, HKV, page_size, D]; a ragged
batch then has no cu_seqlens_kv. `new_k` and `new_v` are written into k and v. The scales of q, k and v, if these are
float8_e4m3fn, are f32: [H] or [B, H], [B, H, blocks], or [B, H, rows]; for k and v with HKV heads."""

ALIGNED = Sequences()  # query i stands at key i
# What callers may ask of kernels, by name: the type of the value, or all values.
OPTIONS = {name: typing.get_args(kind) or kind for name, kind in typing.get_type_hints(c.Options).items()}


def members_of(options):
    """Returns pairs of a member of c.PrepareOptions and its value, for the options that are given. Raises TypeError."""
    members = []
    for name, kind in OPTIONS.items():
        value = options.get(name)
        if value is None:
            continue
        if kind is str and not isinstance(value or "", str):
            raise TypeError(f"{name} is {value!r}; it must be a text, in the spelling of `attnc tune`")
        if kind is float and not (isinstance(value, numbers.Real) and 0 <= value < c.LIMITS[name]):
            raise TypeError(f"{name} is {value!r}; it must be a number in [0, {c.LIMITS[name]})")
        if value and type(kind) is tuple:
            if value not in kind:
                raise TypeError(f"{name} is {value!r}; it must be one of {', '.join(map(repr, kind))}")
            value = getattr(c, f"{name}_{value}".upper())
        if value:
            members.append((name, value.encode() if kind is str else float(value) if kind is float else int(value)))
    return tuple(members)


@dataclasses.dataclass(slots=True)  # frozen, it would take 2 us more to make; nothing writes to a member
class Launch:
    """How an attention is launched over q [B, H, L, E], k [B, HKV, S, E], v [B, HKV, S, EV] and captured tensors. These
    are apart, so that backward passes keep a launch, and tensors only where hooks of saved tensors see them.

    `numbers` are the mod's, by name. `mask` owns mask_mod, and `lists` are its block lists; None: there are none. Members
    from `mod`, a Mod or its text, on say what kernels are made for. `out` is a tensor like the result; None: that is laid
    out like q. `gradients` has the names of captures that want one; None: there is no backward pass. `options` are those
    of members_of(). `fp8` says what shares a scale if q, k and v are rounded to e4m3; None: they are not. `form` is whatever else of the operands was checked."""

    numbers: typing.Mapping[str, typing.Any]
    scale: float | None
    mask: typing.Any = None
    sequences: Sequences = ALIGNED
    lists: typing.Any = None
    mod: typing.Any = None
    out: typing.Any = None
    gradients: tuple[str, ...] | None = None
    deterministic: bool = False
    wants_max: bool = False
    options: tuple[tuple[str, typing.Any], ...] = ()
    fp8: str | None = None
    form: tuple | None = None

    def rescaled(self, scale, mask):
        """Returns the launch with another scale and another owner of mask_mod. dataclasses.replace() takes 3 us more."""
        return Launch(
            self.numbers, scale, mask, self.sequences, self.lists, self.mod, self.out, self.gradients, self.deterministic,
            self.wants_max, self.options, self.fp8, self.form,
        )  # fmt: skip


def settled(mod, structs, **members):
    """Returns the handle of the choices for operands and outputs. `members` are those of c.PrepareOptions."""
    return _made("attnc_settle", mod, structs, members, "attnc_preparation_destroy")


def prepared(mod, structs, **members):
    """Returns the handle of the kernels of these choices, and the bytes of their workspace."""
    handle, size = _made("attnc_prepare", mod, structs, members, "attnc_prepared_destroy"), c_size_t()
    check(library().attnc_prepared_workspace_bytes(handle.address, byref(size)))
    return handle, size.value


def compile_last(preparation):
    """Compiles the last kernel of a preparation, a handle: for training the backward one. Whatever launches it tells of
    failures."""
    plans, made = library().attnc_preparation_plan_count(preparation.address), c_void_p()
    plan = library().attnc_preparation_get_plan(preparation.address, plans - 1)
    if not library().attnc_compile(compiler().address, plan, byref(made)):
        library().attnc_compiled_destroy(made)


def lists_in_workspace(preparation):
    """Returns (whether the workspace holds lists of blocks, whether each launch makes them anew)."""
    info, plan = c.PreparationInfo(), c.PlanInfo()
    check(library().attnc_preparation_get_info(preparation, byref(info)))
    check(library().attnc_plan_get_info(library().attnc_preparation_get_plan(preparation, 0), byref(plan)))
    return bool(info.builds_block_mask), bool(info.builds_block_mask) and plan.kv_loop == c.KV_LOOP_LISTED


def _made(create, mod, structs, members, destroyer):
    create, options = create if len(structs) == 2 else f"{create}_training", c.PrepareOptions(**members)
    return Handle(create, compiler().address, mod, *structs, byref(options), destroyer=destroyer)
