"""Tokens on a grid: what a mod says of an image, a video, a volume. Python's reading of it; attnc's is dsl/SPEC.md."""


class Grid:
    """Tokens `before` to `before + HEIGHT * WIDTH - 1`, row-major, the last axis fastest; others lie beside it."""

    def __init__(self, *extents, before=0):
        if not 1 <= len(extents) <= 3:
            raise TypeError(f"a grid has 1 to 3 axes, not {len(extents)}")
        self.extents, self.before = extents, before

    def _behind(self, axis):
        """The tokens from one coordinate along the axis to the next."""
        count = 1
        for extent in self.extents[axis + 1:]:
            count = count * extent
        return count

    def coords(self, position):
        """One coordinate an axis. Beside the grid the first one lies outside 0 to its extent."""
        token = position - self.before
        rows = [token // self._behind(axis) for axis in range(len(self.extents))]
        return (rows[0], *(row % extent for row, extent in zip(rows[1:], self.extents[1:])))

    def contains(self, position):
        token = position - self.before
        return (token >= 0) & (token < self._behind(-1))


def grid(*extents, before=0):
    """grid(HEIGHT, WIDTH), grid(FRAMES, HEIGHT, WIDTH, before=TEXT)"""
    return Grid(*extents, before=before)
