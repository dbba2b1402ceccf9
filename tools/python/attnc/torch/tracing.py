"""Traces mods to ATen graphs as FlexAttention does: with make_fx over fake scalars, the mods unedited."""

import functools

import torch
import torch._inductor  # noqa: F401  make_fx loads it; the first call should not wait for that
from torch._decomp import get_decompositions
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.overrides import TorchFunctionMode

from .errors import UntranslatableError

# Formulas that torch itself has for functions of the neural networks.
_DECOMPOSED = (
    "addcdiv addcmul celu elu frac gelu hardsigmoid hardswish hardtanh heaviside hypot leaky_relu lerp "
    "log_sigmoid_forward logaddexp logaddexp2 masked_fill mish nan_to_num sgn silu softplus square threshold xlogy"
).split()


@functools.cache
def _decompositions():
    return get_decompositions([getattr(torch.ops.aten, name) for name in _DECOMPOSED])


class _ScalarIndices(TorchFunctionMode):
    """`t[i]` with 0-d integer tensors is a gather; torch would ask for the number."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function is torch.Tensor.__getitem__:
            return self._get(*args)
        return function(*args, **(kwargs or {}))

    @staticmethod
    def _get(tensor, given):
        given = given if isinstance(given, tuple) else (given,)
        is_tensor = [isinstance(item, torch.Tensor) and item.dtype not in (torch.bool, torch.uint8) for item in given]
        if not any(is_tensor) or any(
            isinstance(item, (list, torch.Tensor)) and not tensors for item, tensors in zip(given, is_tensor)
        ):
            return torch.Tensor.__getitem__(tensor, given if len(given) != 1 else given[0])
        # Everything but the tensors first; then the tensors at the axes that are left.
        used = sum(item is not None and item is not ... for item in given)
        plain, indices = [], []
        for item, is_index in zip(given, is_tensor):
            if item is ...:
                plain += [slice(None)] * (tensor.dim() - used)
                indices += [None] * (tensor.dim() - used)
            elif is_index:
                plain.append(slice(None))
                indices.append(item)
            else:
                plain.append(item)
                indices += [] if isinstance(item, int) else [None]
        if any(item != slice(None) for item in plain):
            tensor = torch.Tensor.__getitem__(tensor, tuple(plain))
        return torch.ops.aten.index(tensor, indices)


def trace(function, is_score_mod, device):
    """The graph of a mod; its captured tensors are attributes of the result."""
    scalars = [torch.zeros((), dtype=torch.int32, device=device) for _ in range(4)]
    if is_score_mod:
        scalars.insert(0, torch.zeros((), device=device))
    # A call more, since make_fx asks for the names of the parameters, which not every callable has.
    call = lambda *args: function(*args)  # noqa: E731
    try:
        with torch.no_grad(), _ScalarIndices():
            return make_fx(
                call, decomposition_table=_decompositions(), tracing_mode="fake", _allow_non_fake_inputs=True
            )(*scalars)
    except (DataDependentOutputException, GuardOnDataDependentSymNode, DynamicOutputShapeException) as error:
        raise UntranslatableError(
            f"{_name(function)} asks for the number in a tensor ({error}). A mod is computed for all scores at once: "
            "instead of `if` use torch.where, &, | and ~; instead of .item() use the tensor"
        ) from error


def _name(function):
    return getattr(function, "__qualname__", None) or repr(function)
