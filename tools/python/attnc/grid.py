"""Tokens on a grid, for mods of images, videos and volumes. This runs mods in Python; dsl/SPEC.md defines grids for
attnc."""

import math
import typing


class Grid:
    """Tokens `before` to `before + HEIGHT * WIDTH - 1`, row-major, the last axis fastest. All other tokens lie off the
    grid."""

    def __init__(self, *extents: int, before: int = 0):
        if not 1 <= len(extents) <= 3:
            raise TypeError(f"a grid has 1 to 3 axes, not {len(extents)}")
        self.extents: tuple[int, ...] = extents
        self.before: int = before

    def _behind(self, axis):
        """Returns how many tokens apart neighbours along the axis are."""
        return math.prod(self.extents[axis + 1 :])

    def coords(self, position: typing.Any) -> tuple[typing.Any, ...]:
        """Returns one coordinate per axis. For a token off the grid, the first one is negative or at least its
        extent."""
        token = position - self.before
        rows = [token // self._behind(axis) for axis in range(len(self.extents))]
        return (rows[0], *(row % extent for row, extent in zip(rows[1:], self.extents[1:])))

    def contains(self, position: typing.Any) -> typing.Any:
        """Returns whether the token is on the grid."""
        token = position - self.before
        return (token >= 0) & (token < self._behind(-1))


def grid(*extents: int, before: int = 0) -> Grid:
    """Makes a grid of 1 to 3 axes: grid(HEIGHT, WIDTH), or grid(FRAMES, HEIGHT, WIDTH, before=TEXT) behind TEXT
    tokens."""
    return Grid(*extents, before=before)
