"""Mods from tensors: the text of a mask that is given element by element.

In: a mask of torch, numpy or JAX. Out: an Inference, with the text, its captures, and what was recognised.
"""

import ctypes
import dataclasses
import importlib
import json
import typing

from ._library import Handle
from .dlpack import View
from .mod import Mod


@dataclasses.dataclass(frozen=True)
class Inference:
    """What a mask was found to be. `form` is "formula", "intervals" or "table". `captures` maps the names of the mod's
    captures to tensors of the mask's library, on its device. `blocks` counts blocks of 128 x 128 that are "full",
    "partial" and "empty". `noise` is None, or has the number of `elements` in which the mask differs from a simpler
    `expression`, and the first `places`."""

    text: str
    mod: Mod
    captures: dict[str, typing.Any]
    expression: str
    form: str
    recognised: list[str]
    other_lengths: str
    shape: tuple[int, int, int, int]
    live: float
    blocks: dict[str, int]
    seconds: float
    noise: dict[str, typing.Any] | None = None

    @property
    def mask_mod(self) -> typing.Callable[..., typing.Any]:
        """The function of the text, which reads the captures: for PyTorch's create_block_mask, or to call."""
        scope = {}
        exec(self.text, scope)
        scope.update(zip(("B", "H", "Q_LEN", "KV_LEN"), self.shape))
        scope.update(self.captures)
        return scope["mask_mod"]

    def __str__(self) -> str:
        lines = [self.text, f"recognised  {'; '.join(self.recognised)}", f"form        {self.form}"]
        lines += [f"capture     {name}: {list(value.shape)}" for name, value in self.captures.items()]
        if self.noise:
            lines.append(f"noise       {self.noise['elements']} elements differ from {self.noise['expression']}")
        blocks = ", ".join(f"{count} {what}" for what, count in self.blocks.items())
        return "\n".join([*lines, f"other sizes {self.other_lengths}", f"blocks      {blocks}, of 128 x 128"])


def infer(mask: typing.Any, *, name: str = "a tensor") -> Inference:
    """Finds the shortest mod that is equal to a mask on every element. The mask is [Q, KV], [B, Q, KV] or [B, H, Q, KV]: bool,
    ints of 0 and 1, or floats of 0 (live) and -inf, or another number up to -1e4 (masked). `name` is its name in the
    text.

    `attnc.attention(found.mod, q, k, v, captures=found.captures)` computes with it. Raises RunError for a tensor that is
    no mask, and InternalError if the mod differs from the mask, which is compared element by element."""
    on_host = mask.detach().cpu() if hasattr(mask, "detach") else mask
    if type(mask).__module__.startswith("jax"):
        on_host = importlib.import_module("numpy").asarray(mask)
    view, text = View(on_host, "mask", on_gpu=False), ctypes.c_char_p()
    handle = Handle(
        "attnc_infer", ctypes.byref(view.struct), name.encode(), ctypes.byref(text), destroyer="attnc_mod_destroy"
    )
    found = json.loads(text.value)
    captures = {one["name"]: _tensor(mask, one) for one in found.pop("captures")}
    return Inference(**{**found, "shape": tuple(found["shape"])}, mod=Mod(handle), captures=captures)


def _tensor(mask, capture):
    """Returns a capture as a tensor of the library of `mask`, on its device."""
    dtype, library_name = ("bool" if capture["dtype"] == "bool" else "int32"), type(mask).__module__.partition(".")[0]
    if library_name == "torch":
        torch = importlib.import_module("torch")
        made = torch.tensor(capture["values"], dtype=getattr(torch, dtype)).reshape(capture["shape"])
        return made.to(mask.device)
    numpy = importlib.import_module("numpy")
    made = numpy.array(capture["values"], dtype=dtype).reshape(capture["shape"])
    return importlib.import_module("jax.numpy").asarray(made) if library_name.startswith("jax") else made
