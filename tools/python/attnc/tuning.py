"""Measures which tile of a kernel is the fastest, and keeps it."""

import typing
from ctypes import byref

from ._library import Handle, check, compiler, library
from ._spec import TunedTile
from .attention import Given
from .errors import ArgumentError
from .launch import Launch
from .mod import Mod

_FORWARD = 0


class Tile(typing.NamedTuple):
    """A measured tile: `ms` per launch (0 if it was not launched), whether it won, and why it was passed over (may be
    empty)."""

    tile: str
    ms: float
    is_winner: bool
    passed_over: str


def tune(
    mod: Mod | str, q: typing.Any, k: typing.Any, v: typing.Any, *,
    captures: typing.Mapping[str, typing.Any] | None = None, scale: float | None = None, stream: int | None = None,
) -> list[Tile]:  # fmt: skip
    """Measures the tiles of the kernel of attention(), for some seconds, and keeps the fastest one in the cache
    directory. From then on, kernels of all processes use it on this GPU, for this mod and problems of the same class.

    Takes operands as attention() does, on a GPU. Returns a list of Tile; the first one is the choice of the cost model.
    Raises ModError, RunError and ArgumentError.
    """
    given = Given(Launch({}, scale, mod=mod), q, k, v, captures or {}, False, stream)
    if not given.on_gpu:
        raise ArgumentError("q is on the CPU, where there is no kernel to be tuned", "move the operands to a CUDA device")
    tuning = Handle(
        "attnc_tune", compiler().address, given.handle, byref(given.operands), byref(given.outputs), None, given.stream,
        destroyer="attnc_tuning_destroy",
    )  # fmt: skip
    tiles = []
    for index in range(library().attnc_tuning_tile_count(tuning.address, _FORWARD)):
        tile = TunedTile()
        check(library().attnc_tuning_get_tile(tuning.address, _FORWARD, index, byref(tile)))
        tiles.append(Tile(tile.tile.decode(), tile.ms, bool(tile.is_winner), tile.passed_over.decode()))
    Mod._tunings += 1
    return tiles
