"""What the command that the wheel contains shows of a mod: pictures of masks, as SVG, and other texts."""

import contextlib
import ctypes
import html
import itertools
import json
import math
import pathlib
import tempfile

from ._command import output_of
from ._library import DTYPE_NAMES, DTYPES, library
from .dlpack import View, number_of, on_cpu

# Notebooks draw masks of up to this many scores unasked, in about a second.
MOST_UNASKED = 1 << 26


def shown(command, mod, captures, *options, operands=None):
    """Returns what the command prints of a mod. None for captures: it draws them. `operands` maps names of further tensors,
    whose elements do not count, to their dtypes and shapes."""
    with tempfile.TemporaryDirectory(prefix="attnc-") as folder:
        text, options = pathlib.Path(folder) / "mod.ir", list(options)
        text.write_text(mod.ir)
        if captures is not None:
            mod.check_names(captures)
            numbers = {capture.name: capture.kind for capture in mod.captures if capture.kind != "tensor"}
            options += [f"--set={name}={number_of(captures[name], name, kind)}" for name, kind in numbers.items()]
            tensors = {name: value for name, value in captures.items() if name not in numbers}
            if tensors or operands:
                data = pathlib.Path(folder) / "tensors.safetensors"
                _write(data, tensors, operands or {})
                options.append(f"--in={data}")
        return output_of(command, str(text), *options)


def html_of(svg: str, caption: str) -> str:
    return f"<figure>{svg}<figcaption><code>{html.escape(caption)}</code></figcaption></figure>"


@contextlib.contextmanager
def unasked():
    """Notebooks ask every object for its pictures; one that cannot be drawn has none."""
    with contextlib.suppress(Exception):
        yield


def _write(path, tensors, operands):
    """Writes a safetensors file. Operands are holes at its end, which take no room on the disk."""
    header, held, parts, end = {}, {}, [], 0
    for name, tensor in tensors.items():
        view = View(on_cpu(tensor), name, False)
        dtype = DTYPE_NAMES[view.struct.dtype]
        parts.append(_dense(view.struct, _bytes_of(dtype)))
        held[name] = dtype, view.struct.shape[: view.struct.rank]
    for name, (dtype, shape) in (*held.items(), *operands.items()):
        begin, end = end, end + math.prod(shape) * _bytes_of(dtype)
        spelled = "F8_E4M3" if dtype == "e4m3" else dtype.upper()
        header[name] = {"dtype": spelled, "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text + b"".join(parts))
        file.truncate(8 + len(text) + end)


def _bytes_of(dtype):
    return library().attnc_dtype_bytes(DTYPES[dtype])


def _dense(tensor, size):
    """Returns the elements of a tensor in order."""
    shape, stride = tensor.shape[: tensor.rank], tensor.stride[: tensor.rank]
    run = 1  # elements that lie one after another
    while shape and stride[-1] == run:
        run *= shape.pop()
        stride.pop()
    offsets = (sum(map(int.__mul__, at, stride)) for at in itertools.product(*map(range, shape)))
    return b"".join(ctypes.string_at(tensor.data + offset * size, run * size) for offset in offsets)
