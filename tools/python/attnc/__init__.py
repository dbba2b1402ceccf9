"""attnc: an attention compiler. It turns a few lines of text into CUDA kernels.

    mod = attnc.Mod.parse("where(q_idx >= kv_idx, 30 * tanh(score / 30), -inf)")
    out = attnc.attention(mod, q, k, v)

`attnc.torch` and `attnc.jax` have FlexAttention's interface with gradients, and need torch or jax. Nothing else here
needs these or a GPU.
"""

from .attention import attention
from .errors import ArgumentError, CpuWarning, Error, InternalError, ModError, ModWarning, RunError
from .grid import grid
from .inference import Inference, infer
from .inspection import explain
from .mod import CapturedValue, Mod
from .names import (
    B, H, HKV, KV_LEN, Q_LEN, and_masks, bf16, choice, f16, f32, i8, i16, i32, i64, noop_mask, or_masks, random, reduce_max,
    reduce_sum, tanh_approx, u8,
)  # fmt: skip
from .names import bool as bool  # not for `import *`, since it hides Python's
from .proofs import Example, Proof, Refuted, Undecided, prove
from .quantise import quantise
from .tuning import Tile, tune

__all__ = [
    "ArgumentError", "B", "CapturedValue", "CpuWarning", "Error", "Example", "H", "HKV", "Inference", "InternalError", "KV_LEN",
    "Mod", "ModError", "ModWarning", "Proof", "Q_LEN", "Refuted", "RunError", "Tile", "Undecided", "and_masks",
    "attention", "bf16", "choice", "explain", "f16", "f32", "grid", "i16", "i32", "i64", "i8", "infer", "noop_mask", "or_masks", "prove",
    "quantise", "random", "reduce_max", "reduce_sum", "tanh_approx", "tune", "u8", "version",
]  # fmt: skip


def version() -> str:
    """Returns the version of the library, as text."""
    from ._library import library

    return library().attnc_version_text().decode()


def __getattr__(name: str) -> str:
    if name == "__version__":
        return version()
    raise AttributeError(f"module 'attnc' has no attribute {name!r}")
