"""Mods: parses a text into a checked program."""

import ctypes
import dataclasses
import difflib
import json
import os
import typing
import warnings
from ctypes import byref, pointer

from ._calls import stack_level
from ._ir_text import DIMS
from ._library import DTYPE_NAMES, DTYPES, KINDS, Handle, check, compiler, library
from ._spec import (
    MAX_RANK, BackwardOperands, BackwardOutputs, Capture, CaptureInfo, Define, Diagnostic, ModInfo, Operands, Outputs,
    ParseOptions, Tensor,
)  # fmt: skip
from .dlpack import View, number_of
from .errors import ArgumentError, ModWarning
from .launch import Launch, settled
from .pictures import html_of, shown, unasked


@dataclasses.dataclass(frozen=True)
class CapturedValue:
    """A value that a mod needs at launch. `kind` is "tensor", "int", "float" or "bool". A tensor also has a dtype
    ("f32") and extents ("4", "H", "KV_LEN", or a free name). If its elements choose mods, `choices` is their number. `is_sum`: whether
    it is an output of a mod that is a sum, and no maximum."""

    name: str
    kind: str
    dtype: str | None = None
    extents: tuple[str, ...] = ()
    choices: int = 0
    is_sum: bool = False

    def __str__(self) -> str:
        """Returns the declaration: "bias: f32[H, KV_LEN]"."""
        return f"{self.name}: {self.kind if self.dtype is None else self.dtype + '[' + ', '.join(self.extents) + ']'}"


SOME_ADDRESS = 1 << 20  # of captures, whose memory is not read before a launch
_FUNCTIONS = "score_mod", "mask_mod", "prob_mod", "sink_mod", "weight_mod"


class Mod:
    """A parsed and checked mod: the score_mod, mask_mod, prob_mod, sink_mod and weight_mod of an attention. Immutable and thread-safe. `warnings` holds
    a ModWarning for each part of the text that is legal but probably not meant. parse() and load() also issue them."""

    name: str
    hash: str
    has_score_mod: bool
    has_mask_mod: bool
    has_prob_mod: bool
    has_sink_mod: bool
    has_weight_mod: bool
    walks_twice: bool  # whether prob_mod is no multiple of prob, so that one walk finds lse and another computes weights
    captures: tuple[CapturedValue, ...]
    outputs: tuple[CapturedValue, ...]  # that the mod declares, as attention(return_outputs=True) returns them
    warnings: tuple[ModWarning, ...]
    _tunings: typing.ClassVar[int] = 0  # in this process: kernels that were prepared before may have other tiles

    def __init__(self, handle: typing.Any):
        self._prepared: dict[typing.Any, typing.Any] = {}  # by the form of operands, see attention.Given.kernels
        self._handle = handle
        info = ModInfo()
        check(library().attnc_mod_get_info(handle.address, ctypes.byref(info)))
        self.name, self.hash = info.name.decode(), info.hash.decode()
        for what in _FUNCTIONS:
            setattr(self, f"has_{what}", bool(getattr(info, f"has_{what}")))
        self.walks_twice = bool(info.walks_twice)
        of_captures, of_outputs = library().attnc_mod_get_capture, library().attnc_mod_get_reduction
        self.captures = tuple(self._told(of_captures, index) for index in range(info.capture_count))
        self.outputs = tuple(self._told(of_outputs, index) for index in range(info.reduction_count))
        self.warnings = tuple(self._warning(index) for index in range(info.warning_count))

    @classmethod
    def parse(cls, text: str, *, name: str = "<mod>", defines: typing.Mapping[str, typing.Any] | None = None) -> "Mod":
        """Parses a mod. The text defines a score_mod, a mask_mod, a prob_mod, or several, and declares its captures; or it is a bare
        expression ("q_idx >= kv_idx"). `defines` overrides constants of the mod: {"WINDOW": 512}. Raises ModError with
        the places of all errors. The language is specified in dsl/SPEC.md of the source."""
        options, keep = _options(name, defines)
        data = text.encode()
        return cls(_made("attnc_mod_parse", data, len(data), ctypes.byref(options), keep=keep))._warned()

    @classmethod
    def parse_ir(cls, text: str, *, name: str = "<ir>") -> "Mod":
        """Parses IR text, the format of `ir`."""
        data = text.encode()
        return cls(_made("attnc_mod_parse_ir", data, len(data), name.encode()))

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, defines: typing.Mapping[str, typing.Any] | None = None) -> "Mod":
        """Loads a mod from a file. A file named *.ir contains IR text."""
        options, keep = _options("", defines)
        return cls(_made("attnc_mod_load", os.fsencode(path), ctypes.byref(options), keep=keep))._warned()

    @classmethod
    def choice(cls, mods: typing.Sequence["Mod"], which: str) -> "Mod":
        """Makes the mod in which sequence b has `mods[which[b]]`. `which` declares the capture that says so:
        "which: i32[B]". Its captures are those of all mods; equal names are one capture."""
        mods = list(mods)  # whose handles live until the call is made
        handles = (ctypes.c_void_p * len(mods))(*(mod._handle.address for mod in mods))
        return cls(_made("attnc_mod_choice", handles, len(mods), which.encode()))

    @property
    def ir(self) -> str:
        """The program after all passes, as IR text."""
        return library().attnc_mod_ir(self._handle.address).decode()

    def explain(
        self, shape: tuple[int, int, int, int, int], *, captures: typing.Mapping[str, typing.Any] | None = None,
        dtype: str = "bf16", head_dim: int = 128, head_dim_v: int | None = None, arch: str | None = None,
        training: bool = False, gradients: typing.Sequence[str] = (),
    ) -> dict[str, typing.Any]:  # fmt: skip
        """Returns what the kernel for a problem is, why it was chosen, and what it costs: the object that
        `attnc explain --json` prints.

        `shape` is (B, H, HKV, Q_LEN, KV_LEN). `captures` maps the names of the mod's captures to numbers, or to tensors
        on the CPU. With `training`, this is about the backward kernel; `gradients` names the captures whose gradients it
        also computes, and sums of the mod that have one (the command's default is all that a gradient reaches, and all
        sums). `arch` is a GPU architecture such as
        "sm_90a"; the default is that of the current CUDA context. Compiles the kernel, or takes it from the cache, and
        needs no GPU. Raises RunError and ArgumentError."""
        array, keep = self._given(captures or {}, on_gpu=False)
        sums = [output.name for output in self.outputs if output.is_sum]
        reads = training and not set(sums).isdisjoint(gradients)
        given = self._and_gradients_of_sums(array, shape) if reads else array
        launch = Launch({}, None, gradients=[name for name in gradients if name not in sums] if training else None)
        preparation = self._settled(launch, shape, dtype, (head_dim, head_dim_v or head_dim), given, arch)
        return self._explained(preparation, array)

    def _and_gradients_of_sums(self, captures, shape):
        """Returns captures, followed by the gradients of all sums."""
        lengths, all_of = dict(zip(DIMS, shape)), [*captures]
        for output in self.outputs:
            if output.is_sum:
                gradient = _dense("f32", [lengths[extent] for extent in output.extents])
                gradient.data = SOME_ADDRESS
                all_of.append(Capture(name=f"{output.name}_gradient".encode(), tensor=pointer(gradient)))
        return (Capture * len(all_of))(*all_of)

    def _explained(self, preparation, array):
        text = ctypes.c_char_p()
        check(library().attnc_explain(compiler().address, preparation.address, array, len(array), byref(text)))
        return json.loads(text.value)

    def _settled(
        self, launch, shape, dtype, head_dims, captures, arch, has_lse=False, has_dlse=False, scales=None, has_tangents=False,
        reduced=None,
    ):  # fmt: skip
        """Returns the handle of the choices for operands without memory, of the head dims of q and k, and of v. Of a
        launch, `gradients`, `wants_max` and `options` count. `has_lse`: whether lse is written; `has_dlse`: whether it has a
        gradient. `scales`: the last axes of scales of q, and of k and v, which are then of e4m3; `dtype` is the result's.
        `has_tangents`: whether q, k and v have directions. `reduced`: shapes of outputs of the mod that are written, by name."""
        gradients = launch.gradients
        (batch, heads, kv_heads, q_len, kv_len), (head_dim, head_dim_v) = shape, head_dims
        of_rows = dtype if scales is None else "e4m3"
        q, k, v, out = (
            pointer(_dense(of_tensor, dims))
            for of_tensor, dims in ((of_rows, (batch, heads, q_len, head_dim)),
                                    (of_rows, (batch, kv_heads, kv_len, head_dim)),
                                    (of_rows, (batch, kv_heads, kv_len, head_dim_v)),
                                    (dtype, (batch, heads, q_len, head_dim_v)))
        )  # fmt: skip
        operands = Operands(q=q, k=k, v=v, captures=captures, capture_count=len(captures))
        if scales is not None:
            operands.q_scales = pointer(_dense("f32", (batch, heads, *scales[0])))
            operands.k_scales = operands.v_scales = pointer(_dense("f32", (batch, kv_heads, *scales[1])))
        lse, more = pointer(_dense("f32", (batch, heads, q_len))), ()
        outputs = Outputs(
            out=out, lse=lse if has_lse or gradients is not None else None, row_max=lse if launch.wants_max else None
        )
        if reduced:
            given = [Capture(name=name.encode(), tensor=pointer(_dense("f32", dims))) for name, dims in reduced.items()]
            outputs.reductions, outputs.reduction_count = (Capture * len(given))(*given), len(given)
        if gradients is not None:
            operands = BackwardOperands(
                forward=pointer(operands), out=out, lse=lse, dout=out, dlse=lse if has_dlse else None
            )
            tangents = {"out_tangent": out, "lse_tangent": lse} if has_tangents else {}
            if has_tangents:
                operands.q_tangent, operands.k_tangent, operands.v_tangent = q, k, v
            like = {capture.name.decode(): capture.tensor for capture in captures}
            if unknown := set(gradients) - set(like):
                raise ArgumentError(f"gradients names {', '.join(sorted(unknown))}", f"captures are {', '.join(like)}")
            wanted = [
                Capture(name=name.encode(), kind=KINDS.index("tensor"), tensor=like[name] or pointer(_dense("f32", ())))
                for name in gradients
            ]
            more = (byref(BackwardOutputs(
                dq=q, dk=k, dv=v, captures=(Capture * len(wanted))(*wanted), capture_count=len(wanted), **tangents
            )),)  # fmt: skip
        structs = byref(operands), byref(outputs), *more
        return settled(self._handle.address, structs, arch=arch and arch.encode(), **dict(launch.options))

    def _given(self, captures, on_gpu, wait=None):
        """Returns an array of captures, and the objects that must outlive it."""
        self.check_names(captures)
        keep, entries = [], []
        for wanted in self.captures:
            value = captures[wanted.name]
            entry = Capture(name=wanted.name.encode(), kind=KINDS.index(wanted.kind))
            if wanted.kind == "tensor":
                view = View(value, wanted.name, on_gpu, wait)
                entry.tensor = pointer(view.struct)
                keep.append(view)
            else:
                number = number_of(value, wanted.name, wanted.kind)
                entry.kind = KINDS.index(type(number).__name__)
                entry.real, entry.integer = number, 0 if type(number) is float else number
            entries.append(entry)
        return (Capture * len(entries))(*entries), keep

    def check_names(self, names: typing.Collection[str]) -> None:
        """Raises ArgumentError unless these are the names of the captures."""
        known = [capture.name for capture in self.captures]
        for name in names:
            if name in known:
                continue
            meant = difflib.get_close_matches(str(name), known, 1)
            raise ArgumentError(
                f"captures has `{name}`, which the mod does not capture",
                f"did you mean `{meant[0]}`?" if meant else f"its captures: {', '.join(known) or 'none'}",
            )
        for name in known:
            if name not in names:
                raise ArgumentError(f"the mod captures `{name}`, which is not given", f"captures={{'{name}': ...}}")

    def mask_svg(
        self, shape: int | tuple[int, ...] | None = None, *, captures: typing.Mapping[str, typing.Any] | None = None,
        block: int | tuple[int, int] = 128, batch: int | None = None, head: int | None = None,
        rows: tuple[int, int] | None = None, columns: tuple[int, int] | None = None,
    ) -> str:  # fmt: skip
        """Returns a picture of the mask, as SVG text: which blocks of the score matrix are full, partial or empty.

        `shape` is (B, H, HKV, Q_LEN, KV_LEN), the two lengths, or one number for both. Default: that of the captures, or
        of the grid that the mod declares; else (1, 16, 16, 4096, 4096). `captures` maps the names of the mod's captures
        to tensors or numbers; default: they are drawn at random. `rows` and `columns`, half-open ranges, choose a part
        of the matrix, `batch` and `head` an entry. Notebooks show a mod by this picture. Raises RunError."""
        spelled = lambda sizes: sizes if isinstance(sizes, int) else ",".join(map(str, sizes))  # noqa: E731
        options = {"block": spelled(block), "shape": shape and spelled(shape), "batch": batch, "head": head}
        options |= {name: part and f"{part[0]}:{part[1]}" for name, part in (("rows", rows), ("columns", columns))}
        given = [f"--{name}={value}" for name, value in options.items() if value is not None]
        return shown("mask", self, captures, "--output=-", *given)

    def _repr_svg_(self) -> str | None:
        with unasked():
            return self.mask_svg() if self.has_mask_mod else None

    def _repr_html_(self) -> str | None:
        svg = self._repr_svg_()
        return svg and html_of(svg, repr(self) + (", with captures drawn at random" if self.captures else ""))

    def _told(self, get, index):
        info = CaptureInfo()
        check(get(self._handle.address, index, ctypes.byref(info)))
        if KINDS[info.kind] != "tensor":
            return CapturedValue(info.name.decode(), KINDS[info.kind])
        extents = tuple(info.extent[axis].decode() for axis in range(info.rank))
        return CapturedValue(info.name.decode(), "tensor", DTYPE_NAMES[info.dtype], extents, info.choices, bool(info.is_sum))

    def _warning(self, index):
        found = Diagnostic()
        check(library().attnc_mod_get_warning(self._handle.address, index, ctypes.byref(found)))
        return ModWarning(found.id.decode(), found.rendered.decode(errors="replace"))

    def _warned(self):
        for warning in self.warnings:
            warnings.warn(warning, stacklevel=stack_level())
        return self

    def __repr__(self) -> str:
        functions = [what for what in _FUNCTIONS if getattr(self, f"has_{what}")]
        return f"<attnc.Mod {self.name}: {', '.join([*functions, *map(str, self.captures)])}>"


def _dense(dtype, shape):
    """Returns a tensor without memory."""
    if dtype not in DTYPES:
        raise ArgumentError(f"dtype is {dtype!r}", f"one of {', '.join(DTYPES)}")
    tensor = Tensor(dtype=DTYPES[dtype], rank=len(shape), shape=(ctypes.c_int64 * MAX_RANK)(*shape))
    check(library().attnc_tensor_make_dense(byref(tensor)))
    return tensor


def _made(function, *arguments, keep=None):
    return Handle(function, *arguments, destroyer="attnc_mod_destroy")


def _options(name, defines):
    """Returns the struct, and the objects that must outlive it."""
    pairs = [(key.encode(), repr(value).encode()) for key, value in (defines or {}).items()]
    array = (Define * len(pairs))(*pairs)
    return ParseOptions(name=name.encode(), defines=array, define_count=len(pairs)), (pairs, array)
