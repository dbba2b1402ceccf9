"""The table of ATen operations, and functions that their handlers share.

A handler takes the lowering, the fake tensor of the result, and the arguments: Arrays, and other values of torch
unchanged. It returns an Array, or a list of them if the operation has several results.
"""

import torch

from ..._arrays import Array, ir_type
from ..._formulas import narrow, to_dtype

HANDLERS = {}  # name of an ATen packet -> handler


def op(*names):
    def register(handler):
        HANDLERS.update(dict.fromkeys(names, handler))
        return handler

    return register


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
        out, lambda *values: narrow(low.builder, function(*values), out.dtype), *[(x, type) for x in operands]
    )


@op("_to_copy", "to", "convert_element_type", "clone", "alias", "lift_fresh_copy", "lift_fresh", "contiguous", "_conj")
def convert(low, out, a, *_, **__):
    return low.elementwise(
        out, lambda x: to_dtype(low.builder, x, out.dtype) if out.dtype != a.dtype else x, (a, a.type)
    )


def converted(low, array, dtype):
    """Returns the array in a dtype. What is computed from it has that type."""
    return convert(low, torch.empty_like(array.meta, dtype=dtype), array)
