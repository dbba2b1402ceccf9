"""What is told when a mod cannot be traced: what was found, and what to write instead."""

import os

import torch

from .. import _diagnostics
from .._calls import place_of
from .._diagnostics import Door, name_of, of_call
from .errors import UntranslatableError

INSTEAD = (
    "A mod is computed for all scores at once: instead of `if` use torch.where, &, | and ~; "
    "instead of .item() use the tensor"
)
TORCH = os.path.dirname(torch.__file__)
_DOOR = Door("torch", torch, "tensor", {"int": "{}.long()", "float": "{}.float()", "bool": "{} != 0"}, (TORCH,))


def asked(name, error, dtype):
    """Returns the error of a mod that asks for the number in a traced tensor. `dtype`: that of the tensor."""
    found = _diagnostics.asked(error, dtype, _DOOR)
    if found is not None:
        return found
    place, text = place_of(error, *_DOOR.folders)
    return UntranslatableError(f"{_where(place)}{f'`{text}`' if text else name} asks for the number in a tensor. {INSTEAD}")


def refusal(function, error, is_score_mod):
    """Returns the error to raise in place of one that code of a mod raised. None: it is the mod's own."""
    place, text = place_of(error, *_DOOR.folders)
    told, what = str(error), f"`{text}`" if text else name_of(function)
    if isinstance(error, UntranslatableError):
        return UntranslatableError(f"{_where(place)}{told}") if place and place not in told else error
    is_key, is_numpy = isinstance(error, KeyError) and "Tensor" in told, "is not supported for tensor subclasses" in told
    if is_key or is_numpy:
        if (found := _diagnostics.asked(error, None, _DOOR)) is not None:
            return found
    if is_key:
        told = "looks up a tensor in a dict: capture the values in a tensor, torch.tensor([...])[h]"
    elif is_numpy:
        told = (
            "gives a tensor to NumPy: use torch's functions, such as torch.exp instead of np.exp, and capture "
            "torch.from_numpy(a) instead of the array a"
        )
    else:
        return of_call(function, error, is_score_mod)
    return UntranslatableError(f"{_where(place)}{what} {told}")


def _where(place):
    return f"{place}: " if place else ""
