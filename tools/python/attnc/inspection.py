"""Shows what attnc makes of a mod: the kernel for a problem."""

import typing

from ._library import DTYPES
from .errors import ArgumentError
from .mod import Mod
from .pictures import shown


class Text(str):
    """A text that prompts and notebooks show as it is."""

    def __repr__(self) -> str:
        return str(self)


def explain(
    mod: Mod | str, shape: tuple[int, ...] | None = None, *, captures: typing.Mapping[str, typing.Any] | None = None,
    dtype: str = "bf16", head_dim: int = 128, head_dim_v: int | None = None, arch: str | None = None,
    training: bool = False, gradients: typing.Sequence[str] | None = None,
) -> Text:  # fmt: skip
    """Returns what `attnc explain` prints: which kernel a problem gets, why, and what it costs. Mod.explain() returns it as
    data.

    `mod` is a Mod, or its text. `shape` is (B, H, HKV, Q_LEN, KV_LEN), or the two lengths. Default: (1, 16, 16, 8192,
    8192), with the lengths of the grid that the mod declares. `captures` maps the names of the mod's captures to numbers,
    or to tensors; default: they are drawn. With `training`, this is about the backward kernel. `gradients` names the
    captures whose gradients it also computes, and sums of the mod that have one; default: all that a gradient reaches, and
    all sums. `arch` is a GPU architecture such as
    "sm_90a"; default: that of the GPU, or sm_90a if there is none. Compiles the kernel, or takes it from the cache. Raises
    ModError, RunError and ArgumentError."""
    if dtype not in DTYPES:
        raise ArgumentError(f"dtype is {dtype!r}", f"one of {', '.join(DTYPES)}")
    mod = Mod.parse(mod) if isinstance(mod, str) else mod
    if not isinstance(mod, Mod):
        advice = "give a Mod or its text; of functions of PyTorch, attnc.torch.translate(score_mod, mask_mod).mod"
        raise ArgumentError(f"mod is {type(mod).__name__}", advice)
    options, operands = {
        "arch": arch, "kernel": "backward" if training else None,
        "gradients": ",".join(gradients) or "none" if training and gradients is not None else None,
    }, None  # fmt: skip
    if captures and any(capture.kind == "tensor" for capture in mod.captures):
        if shape is None:
            raise ArgumentError("captured tensors are given, and no shape", "give (B, H, HKV, Q_LEN, KV_LEN)")
        batch, heads, kv_heads, q_len, kv_len = (1, 16, 16, *shape)[-5:]
        operands = {
            "q": (dtype, (batch, heads, q_len, head_dim)), "k": (dtype, (batch, kv_heads, kv_len, head_dim)),
            "v": (dtype, (batch, kv_heads, kv_len, head_dim_v or head_dim)),
        }  # fmt: skip
    else:
        options |= {
            "shape": shape and ",".join(map(str, shape)), "dtype": {"f16": "fp16", "f32": "fp32"}.get(dtype, dtype),
            "head-dim": head_dim, "head-dim-v": head_dim_v,
        }  # fmt: skip
    given = [f"--{name}={value}" for name, value in options.items() if value is not None]
    return Text(shown("explain", mod, captures, *given, operands=operands).rstrip())
