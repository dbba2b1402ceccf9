"""Which tile of a kernel is the fastest, measured and kept."""

import typing
from ctypes import byref

from ._library import Handle, TunedTile, check, compiler, library
from .attention import Given
from .errors import ArgumentError

_FORWARD = 0


class Tile(typing.NamedTuple):
    """A tile that was tried: `ms` of a launch (0: it was not launched), whether it won, and what is wrong with it."""

    tile: str
    ms: float
    is_winner: bool
    passed_over: str


def tune(mod, q, k, v, *, captures=None, scale=None, stream=None):
    """Measures the tiles that the kernel of attention() can have, for some seconds, and keeps the fastest one in the
    cache directory: from then on kernels of all processes have it on this GPU, for this mod, and problems of the same
    class.

    Operands as of attention(), on a GPU. Returns a list of Tile, that of the catalogue's model first. Raises ModError,
    RunError and ArgumentError.
    """
    given = Given(mod, q, k, v, captures, scale, None, False, stream)
    if not given.on_gpu:
        raise ArgumentError(
            "q is on the CPU, where there is no kernel to be tuned", "move the operands to a CUDA device"
        )
    tuning = Handle(
        "attnc_tune", compiler().address, given.handle, byref(given.operands), byref(given.outputs), None, given.stream,
        destroyer="attnc_tuning_destroy",
    )  # fmt: skip
    tiles = []
    for index in range(library().attnc_tuning_tile_count(tuning.address, _FORWARD)):
        tile = TunedTile()
        check(library().attnc_tuning_get_tile(tuning.address, _FORWARD, index, byref(tile)))
        tiles.append(Tile(tile.tile.decode(), tile.ms, bool(tile.is_winner), tile.passed_over.decode()))
    return tiles
