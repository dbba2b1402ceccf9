"""What is told when a mod cannot be traced: what was found, and what to write instead."""

import os
import sys

import torch

from .. import _diagnostics
from .._calls import place_of
from .._diagnostics import Door, of_call
from .errors import UntranslatableError

INSTEAD = (
    "A mod is computed for all scores at once: instead of `if` use torch.where, &, | and ~; "
    "instead of .item() use the tensor"
)
TORCH = os.path.dirname(torch.__file__)
_NUMPY = getattr(sys.modules.get("numpy"), "__path__", ())  # which torch imports, if it is installed
_DOOR = Door("torch", torch, "tensor", {"int": "{}.long()", "float": "{}.float()", "bool": "{} != 0"}, (TORCH, *_NUMPY))


def asked(function, error, dtype):
    """Returns the error of a mod that asks for the number in a traced tensor. `dtype`: that of the tensor."""
    return _diagnostics.asked(function, error, dtype, _DOOR)


def refusal(function, error, what):
    """Returns the error to raise in place of one that code of a mod raised. None: it is the mod's own."""
    told = str(error)
    if isinstance(error, UntranslatableError):
        place, _ = place_of(error, *_DOOR.folders)
        return UntranslatableError(f"{place}: {told}") if place and place not in told else error
    if isinstance(error, KeyError) and "Tensor" in told or "is not supported for tensor subclasses" in told:
        return asked(function, error, None)
    return of_call(function, error, what)
