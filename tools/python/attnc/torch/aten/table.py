"""The table of ATen operations, and functions that their handlers share.

A handler takes the lowering, the fake tensor of the result, and the arguments: Arrays, and other values of torch
unchanged. It returns an Array, or a list of them if the operation has several results.
"""

import torch

from ..arrays import Array, ir_type

HANDLERS = {}  # name of an ATen packet -> handler
SMALL = {torch.uint8: (0xFF, 0), torch.int8: (0xFF, 0x80), torch.int16: (0xFFFF, 0x8000)}


def op(*names):
    def register(handler):
        HANDLERS.update(dict.fromkeys(names, handler))
        return handler

    return register


def narrow(low, value, dtype):
    """Wraps an i32 to a narrower integer."""
    if dtype not in SMALL:
        return value
    mask, half = SMALL[dtype]
    b = low.builder
    if half:
        value = b.op("add", value, b.const(half, "i32"))
    value = b.op("and", value, b.const(mask, "i32"))
    return b.op("sub", value, b.const(half, "i32")) if half else value


def meta_of(operand):
    return operand.meta if isinstance(operand, Array) else operand


def common_type(*operands):
    """Returns the type that operands are computed in together, by torch's promotion."""
    dtype = meta_of(operands[0])
    dtype = dtype.dtype if isinstance(dtype, torch.Tensor) else torch.result_type(dtype, dtype)
    if len(operands) == 2:
        dtype = torch.result_type(meta_of(operands[0]), meta_of(operands[1]))
    return ir_type(dtype)


def arithmetic(low, out, function, *operands):
    """Computes in the result's type, and wraps to its width."""
    type = ir_type(out.dtype)
    return low.elementwise(
        out, lambda *values: narrow(low, function(*values), out.dtype), *[(x, type) for x in operands]
    )


@op("_to_copy", "to", "convert_element_type", "clone", "alias", "lift_fresh_copy", "lift_fresh", "contiguous", "_conj")
def convert(low, out, a, *_, **__):
    def function(x):
        if x.type == "f32" and out.dtype in SMALL:
            x = low.builder.cast(x, "i32")
        return narrow(low, low.builder.cast(x, type), out.dtype) if out.dtype != a.dtype else x

    type = ir_type(out.dtype)
    return low.elementwise(out, function, (a, a.type))


def converted(low, array, dtype):
    """Returns the array in a dtype. What is computed from it has that type."""
    return convert(low, torch.empty_like(array.meta, dtype=dtype), array)
