"""attnc.random on tensors: the operator attnc::random_at, which mods are translated from."""

import torch

from .._philox import PARAMETERS, WORD, bits_at, no_int

_library = torch.library.Library("attnc", "FRAGMENT")
_library.define(f"random_at({', '.join(f'Tensor {name}' for name in PARAMETERS)}) -> Tensor")
_random_at = torch.ops.attnc.random_at.default


def _drawn(*values):
    seed, *position = (value.long() for value in values)
    bits = bits_at((seed & WORD, seed >> 32 & WORD), *(value & WORD for value in position))
    return bits.float() * 2.0**-24


def _batched(info, axes, *values):
    rank = max(value.dim() - (axis is not None) for value, axis in zip(values, axes))

    def at_front(value, axis):
        if axis is None:
            return value
        value = value.movedim(axis, 0)
        return value.reshape(value.shape[0], *[1] * (rank + 1 - value.dim()), *value.shape[1:])

    return _random_at(*map(at_front, values, axes)), 0


_library.impl("random_at", _drawn, "CompositeExplicitAutograd")


def _fake(*values):
    with_dims = max(values, key=lambda value: (value.dim() > 0, value.device.type != "cpu"))  # if any has
    return torch.empty(torch.broadcast_shapes(*(value.shape for value in values)), device=with_dims.device)


torch.library.register_fake("attnc::random_at", _fake, lib=_library)
torch.library.register_vmap("attnc::random_at", _batched, lib=_library)


def draw(*values):
    tensors = []
    for name, value in zip(PARAMETERS, values):
        is_tensor = isinstance(value, torch.Tensor)
        if value.is_floating_point() if is_tensor else not hasattr(value, "__index__"):
            raise no_int(name, f"a tensor of {value.dtype}" if is_tensor else repr(value))
        tensors.append(value if is_tensor else torch.scalar_tensor(value.__index__(), dtype=torch.int64))
    return _random_at(*tensors)
