"""Claims about masks: proved for all launches, or refuted by an example.

In: mask_mods of PyTorch or JAX, mods, or their texts. Out: a Proof. Refuted and Undecided are raised otherwise.
"""

import ctypes
import dataclasses
import importlib
import json
import pathlib
import sys
import types
import typing

from . import _spec as c
from ._diagnostics import held_by, name_of
from ._library import check, library
from .errors import ArgumentError, Error
from .mod import Mod

MaskMod = str | Mod | typing.Callable[..., typing.Any]


@dataclasses.dataclass(frozen=True)
class Example:
    """A launch that refutes a claim, and the score in question. `extents` are {"B": 1, ...}; `kv_idx` is None if the
    claim is about a row. `captures` maps names to numbers, and those of tensors to {index: number}. `picture` has a line
    for each query: "#" lives, "." does not, "X" or "o" is the score in question, live or not. `deciding` maps numbers of
    lines to those lines of the mod's text that make the score live or masked; it is empty for a traced function."""

    extents: dict[str, int]
    b: int
    h: int
    q_idx: int
    kv_idx: int | None
    captures: dict[str, typing.Any]
    picture: str
    deciding: dict[int, str]
    picture_at: tuple[int, int] = (0, 0)  # q_idx and kv_idx of the picture's first score: it has at most 32 x 32
    kv_length: int | None = None  # of the sequence, in a claim about launches with them
    q_offset: int | None = None  # position of the first query, if queries have offsets

    def __str__(self) -> str:
        names = ("b", "h", "q_idx", "kv_idx")
        at = [f"{name} {getattr(self, name)}" for name in names if getattr(self, name) is not None]
        values = []
        for name, value in self.captures.items():
            elements = value.items() if isinstance(value, dict) else [((), value)]
            values += [f"{name}{list(index) if index else ''} = {number}" for index, number in elements]
        extents = self.extents | {"kv_length": self.kv_length, "q_offset": self.q_offset}
        launch = ", ".join(f"{name} {extent}" for name, extent in extents.items() if extent is not None)
        lines = [f"{launch}: {', '.join(at)}"]
        deciding = [f"line {number}: {text}" for number, text in self.deciding.items()]
        is_part = self.picture_at != (self.q_offset or 0, 0)
        deciding += ["from q_idx {}, kv_idx {}:".format(*self.picture_at)] if is_part else []
        return "\n".join([*lines, *([", ".join(values)] if values else []), *deciding, *self.picture.splitlines()])


@dataclasses.dataclass(frozen=True)
class Proof:
    """What came of a claim. `answer` is "proved", "refuted" or "undecided", and `by` is what decided: "intervals",
    "examples", "Z3 4.8.12". `why` says what stands in the way of an undecided claim."""

    claim: str
    answer: str
    by: str = ""
    why: str = ""
    example: Example | None = None

    def __str__(self) -> str:
        head = f"{self.answer}: {self.claim}" + (f", by {self.by}" if self.by else "")
        more = "\n".join(filter(None, (self.why, str(self.example) if self.example else "")))
        return head + "".join(f"\n  {line}" for line in more.splitlines())


class _Unproved(Error):
    def __init__(self, proof: Proof):
        super().__init__(str(proof))
        self.proof = proof


class Refuted(_Unproved, AssertionError):
    """A claim is wrong: `proof.example` shows a launch for which it does not hold."""


class Undecided(_Unproved, RuntimeError):
    """A claim is neither proved nor refuted: `proof.why` says what stands in the way, such as a missing solver."""


def prove(
    mask_mod: MaskMod, holds: MaskMod | None = None, *, never: MaskMod | None = None, every_row_lives: bool = False,
    same_as: MaskMod | None = None, assume: MaskMod | typing.Sequence[MaskMod] = (), seconds: float = 10,
    kv_lengths: bool = False, q_offsets: bool = False,
) -> Proof:  # fmt: skip
    """Proves a claim about a mask for all batch entries, heads, positions, lengths, and values of captures.

    `mask_mod` is a function of PyTorch or JAX, a BlockMask, a Mod, or the text of one. Give one claim: `holds` is true
    for each live score; `never` is false for each live score; with `every_row_lives`, each query has a live score; the
    mask of `same_as` is equal, and so are scores and weights of Mods with a score_mod or prob_mod. A score that a score_mod masks does not live.
    `holds`, `never` and `assume` are functions like mask_mod, or expressions: "kv_idx <= q_idx". Captured tensors have in
    expressions the names that they have in the function. `assume` is what you know, or a sequence of this: functions
    that are true at the score in question, or texts: "Q_LEN <= KV_LEN; doc does not decrease".

    Positions count from 0. With `kv_lengths` the claim is about launches that give each sequence its KV length, 1 to
    KV_LEN, as with a cache: the last query stands at the last key. With `q_offsets` queries stand anywhere at keys.

    Python's numbers are those that a function holds now. Captured tensors stand for all of their dtype and rank: an axis
    that a position indexes directly has the matching length, and other axes keep theirs. Solver: Z3 (docs/proofs.md), for
    about `seconds`.

    Returns the Proof if the claim is proved. Raises Refuted, an AssertionError, with an example against it; Undecided, if
    neither was found; UntranslatableError, ModError, ArgumentError and RunError for what is no mask or no claim."""
    claims = {"holds": holds, "never": never, "every_row_lives": every_row_lives or None, "same_as": same_as}
    kinds = [kind for kind, given in claims.items() if given is not None]
    if len(kinds) != 1:
        raise ArgumentError(f"prove() has {' and '.join(kinds) or 'no claim'}", f"give one of {', '.join(claims)}")
    if not 0 < seconds < float("inf"):
        raise ArgumentError(f"seconds is {seconds}", "give a positive number")
    (kind,) = kinds
    other = None if kind == "every_row_lives" else claims[kind]
    texts, assumed = [], []
    for assumption in assume if isinstance(assume, (list, tuple)) else [assume]:
        (texts if isinstance(assumption, str) else assumed).append(assumption)
    masks = [getattr(mask_mod, "mask_mod", mask_mod), getattr(other, "mask_mod", other), *assumed]
    mod, other, *assumed = _mods(masks, kv_lengths or q_offsets)
    mod = Mod.parse(mod) if isinstance(mod, str) else mod
    number = {"holds": c.CLAIM_HOLDS, "never": c.CLAIM_NEVER, "every_row_lives": c.CLAIM_EVERY_ROW_LIVES}.get(kind)
    if kind == "same_as":
        other = Mod.parse(other) if isinstance(other, str) else other
        is_more = any(one.has_score_mod or one.has_prob_mod or one.has_sink_mod for one in (mod, other))
        number = c.CLAIM_SAME if is_more else c.CLAIM_SAME_MASK
    claim = c.Claim(kind=number, seconds=seconds, assume=";".join(texts).encode(), assumption_count=len(assumed))
    claim.kv_lengths, claim.offsets = kv_lengths, c.OFFSETS_TENSOR if q_offsets else c.OFFSETS_DEFAULT
    claim.assumptions = (ctypes.c_void_p * len(assumed))(*(one._handle.address for one in assumed))
    if isinstance(other, str):
        claim.property = other.encode()
    elif other is not None:
        claim.other = other._handle.address
    found = ctypes.c_char_p()
    check(library().attnc_prove(mod._handle.address, ctypes.byref(claim), ctypes.byref(found)))
    proof = _proof(_words(kind, claims[kind]), json.loads(found.value))
    if proof.answer == "proved":
        return proof
    raise (Refuted if proof.answer == "refuted" else Undecided)(proof)


def _words(kind, given):
    """Returns a claim in words, for messages."""
    if isinstance(given, str):
        what = given if "\n" not in given.strip() else "another text"
    else:
        what = given.name if isinstance(given, Mod) else name_of(given)
    if what.endswith("<lambda>"):
        what = f"the lambda in {pathlib.Path(given.__code__.co_filename).name}:{given.__code__.co_firstlineno}"
    return {"holds": what, "never": f"never {what}", "same_as": f"same as {what}"}.get(kind, "every row lives")


def _proof(claim, found):
    example = found.pop("example", None)
    if example is not None:
        captures = {}
        for one in example["captures"]:
            value, index = _number(one["value"]), tuple(one["index"])
            if index:
                captures.setdefault(one["name"], {})[index] = value
            else:
                captures[one["name"]] = value
        kv_idx = None if claim == "every row lives" else example["kv_idx"]
        deciding = {line["line"]: line["text"] for line in example["deciding"]}
        replaced = {"captures": captures, "kv_idx": kv_idx, "deciding": deciding, "picture_at": tuple(example["picture_at"])}
        example = Example(**{**example, **replaced})
    return Proof(claim, **found, example=example)


def _number(text):
    if text in ("True", "False"):
        return text == "True"
    return int(text) if text.lstrip("-").isdigit() else float(text)


def _mods(given, have_offsets):
    """Returns the mods and texts, with functions translated. Adds what launches of captured tensors meet."""
    functions = [one for one in given if callable(one)]
    for one in given:
        if not (one is None or callable(one) or isinstance(one, (str, Mod))):
            name = type(one).__name__
            raise ArgumentError(f"prove() is given a {name}", "give a mask_mod, a Mod, or the text of one")
    if not functions:
        return given
    builder, values = importlib.import_module(f".{_door_of(functions)}.translation", __package__).together(functions)
    texts, inside = _texts(builder, values, have_offsets)
    mods = iter([Mod.parse_ir(text, name=name_of(function)) for text, function in zip(texts, functions)])
    return [next(mods) if callable(one) else one for one in given] + [Mod.parse_ir(text) for text in inside]


def _door_of(functions):
    """Returns which package traces functions: the one that is imported, or the one whose values they hold."""
    doors = [name for name in ("torch", "jax") if name in sys.modules]
    if not doors:
        raise ArgumentError("neither torch nor jax is imported, which trace functions", "give the mod as text")
    return doors[0] if len(doors) == 1 or not _holds_jax(functions) else "jax"


def _holds_jax(functions):
    """Whether functions reach modules or arrays of JAX."""
    held = (x.__name__ if isinstance(x, types.ModuleType) else type(x).__module__ for _, x in held_by(functions))
    return any(module.split(".")[0] in ("jax", "jaxlib") for module in held)


def _texts(builder, values, have_offsets):
    """Returns IR texts of masks, and of what holds in launches: positions stay inside the tensors that they index.
    Queries with offsets stand at keys, so what they index has KV_LEN elements."""
    from ._ir_text import EXTENT_OF_PARAM, Program

    for capture in builder.captures if have_offsets else ():
        capture.users = [{"kv_idx" if param == "q_idx" else param for param in users} for users in capture.users]
    problem = {}
    for capture in builder.captures:
        for users, size in zip(capture.users, capture.shape):
            for param in users & EXTENT_OF_PARAM.keys():
                name = EXTENT_OF_PARAM[param]
                problem[name] = min(size, problem.get(name, size))
    programs = [Program(builder, {"mask": value}, problem) for value in values]
    inside = set()
    for program in programs:
        for (index, axis), part in program.extents.items():
            size = part if isinstance(part, str) else str(program.numbers[part])
            for param in builder.captures[index].users[axis] & EXTENT_OF_PARAM.keys():
                if EXTENT_OF_PARAM[param] != size:
                    inside.add((EXTENT_OF_PARAM[param], size if size.isdigit() else f"#{size}"))
    head = "output mask(b, h, q_idx, kv_idx) -> "
    return [program.text() for program in programs], [
        f"%0 = le i32 #{name}, {size}\n{head}%0\n" for name, size in sorted(inside)
    ]
