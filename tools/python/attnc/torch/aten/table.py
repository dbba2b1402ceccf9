"""The table of ATen operations, and functions that their handlers share.

A handler takes the lowering, the fake tensor of the result, and the arguments: Arrays, and other values of torch
unchanged. It returns an Array, or a list of them if the operation has several results.
"""

import torch

from ..._arrays import Array, ir_type, registry
from ..._formulas import narrow, to_dtype
from ...errors import UntranslatableError

HANDLERS, op = registry()  # by names of ATen packets


def of_elements(*names):
    """Registers function(builder, values...) as arithmetic."""

    def register(function):
        op(*names)(lambda low, out, *operands: arithmetic(low, out, function, *operands))
        return function

    return register


def meta_of(operand):
    return operand.meta if isinstance(operand, Array) else operand


def common_dtype(a, b):
    """Returns the dtype that operands are compared in. torch.vmap widens a tensor with dims to one without."""
    if isinstance(a, Array) and isinstance(b, Array):
        return torch.promote_types(a.dtype, b.dtype)
    return torch.result_type(meta_of(a), meta_of(b))


def number_in(number, dtype, wraps=True):
    """Returns an operand as torch converts it, if it is an int of Python: to the dtype of the tensors that it meets."""
    if type(number) is not int or dtype.is_floating_point or dtype == torch.bool:
        return number
    limits = torch.iinfo(dtype)
    if not wraps and not min(limits.min, -limits.max) <= number <= limits.max:
        raise UntranslatableError(f"{number} does not fit into {dtype}: convert the tensor to torch.int64")
    return torch.tensor(number).to(dtype).item()


def adopted(low, operand, dtype):
    """Returns an operand of arithmetic in the dtype of the result. Numbers, and ints of tensors without dims that meet
    tensors with dims, wrap to a narrower one."""
    if not isinstance(operand, Array):
        return number_in(operand, dtype)
    is_narrower = not dtype.is_floating_point and torch.promote_types(operand.dtype, dtype) != dtype
    return converted(low, operand, dtype) if is_narrower else operand


def arithmetic(low, out, function, *operands):
    """Computes function(builder, values...) in the result's type, and wraps it to its width."""
    type = ir_type(out.dtype)
    return low.elementwise(
        out, lambda *values: narrow(low.builder, function(low.builder, *values), out.dtype),
        *[(adopted(low, x, out.dtype), type) for x in operands],
    )  # fmt: skip


@op("_to_copy", "to", "convert_element_type", "clone", "alias", "lift_fresh_copy", "lift_fresh", "contiguous", "_conj")
def convert(low, out, a, *_, **__):
    return low.elementwise(out, lambda x: to_dtype(low.builder, x, out.dtype) if out.dtype != a.dtype else x, (a, a.type))


def converted(low, array, dtype):
    """Returns the array in a dtype. What is computed from it has that type."""
    return convert(low, torch.empty_like(array.meta, dtype=dtype), array)
