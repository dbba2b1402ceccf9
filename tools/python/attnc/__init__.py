"""attnc: an attention compiler. It turns a few lines of text into CUDA kernels.

    mod = attnc.Mod.parse("where(q_idx >= kv_idx, 30 * tanh(score / 30), -inf)")
    out = attnc.attention(mod, q, k, v)

`attnc.torch` has FlexAttention's interface with gradients, and needs torch. Nothing else here needs torch or a GPU.
"""

from .attention import attention
from .errors import ArgumentError, Error, InternalError, ModError, ModWarning, RunError
from .grid import grid
from .mod import CapturedValue, Mod
from .tuning import Tile, tune

__all__ = [
    "ArgumentError",
    "CapturedValue",
    "Error",
    "InternalError",
    "Mod",
    "ModError",
    "ModWarning",
    "RunError",
    "Tile",
    "attention",
    "grid",
    "tune",
    "version",
]


def version():
    """Returns the version of the library, as text."""
    from ._library import library

    return library().attnc_version_text().decode()
