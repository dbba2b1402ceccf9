"""What is told when a mod cannot be traced: what was found, and what to write instead."""

import itertools
import linecache
import re

from .._calls import place_of
from .errors import UntranslatableError

INSTEAD = (
    "A mod is computed for all scores at once: instead of `if` use torch.where, &, | and ~; "
    "instead of .item() use the tensor"
)
# Of a line that asked for the number in a tensor: what is in it, and what to write.
_HINTS = (
    (r"\bmath\.(\w+)\(", "instead of math.{0} use torch.{0}"),
    (r"[<>]=?((?!\b(?:and|or)\b)[^<>=])+[<>]", "instead of a < x < b write (a < x) & (x < b)"),
    (r"\b(and|or|not)\b", "instead of `and`, `or` and `not` write &, | and ~, with comparisons in parentheses"),
    (r"\b(int|float|bool|range)\(", "instead of {0}() use the tensor"),
)  # fmt: skip
_WITH_ARGUMENTS = r"takes .*positional argument|missing \d+ required positional|required keyword-only"


def asked(name, error, within):
    """Returns the error of a mod that asks for the number in a tensor. `within`: the folder of torch."""
    place, text = place_of(error, within)
    part = _part(error, text) or text
    hints = [hint.format(*found.groups()) for pattern, hint in _HINTS if (found := re.search(pattern, part))]
    what = f"`{text}`" if text else name
    advice = "; ".join(hints) if hints else INSTEAD
    return UntranslatableError(f"{_where(place)}{what} asks for the number in a tensor: {advice}")


def _part(error, text):
    """Returns the part of a line that raised, and the word behind it, if this Python knows it."""
    traceback, found = error.__traceback__, ""
    while traceback is not None:
        code = traceback.tb_frame.f_code
        line = linecache.getline(code.co_filename, traceback.tb_lineno)
        if line.strip() == text and hasattr(code, "co_positions"):
            first, last, start, end = next(itertools.islice(code.co_positions(), traceback.tb_lasti // 2, None))
            if first == last and start is not None:
                behind = line.encode()[end:].decode().split()[:1]
                found = " ".join([line.encode()[start:end].decode(), *behind])
        traceback = traceback.tb_next
    return found


def refusal(name, error, is_score_mod, within):
    """Returns the error to raise in place of one that code of a mod raised. None: it is the mod's own."""
    place, text = place_of(error, within)
    told, what = str(error), f"`{text}`" if text else name
    if isinstance(error, UntranslatableError):
        return UntranslatableError(f"{_where(place)}{told}") if place and place not in told else error
    if isinstance(error, KeyError) and "Tensor" in told:
        told = "looks up a tensor in a dict: capture the values in a tensor, torch.tensor([...])[h]"
    elif "is not supported for tensor subclasses" in told:
        told = (
            "gives a tensor to NumPy: use torch's functions, such as torch.exp instead of np.exp, and capture "
            "torch.from_numpy(a) instead of the array a"
        )
    elif isinstance(error, TypeError) and _is_of_call(error) and re.search(_WITH_ARGUMENTS, told):
        told = "must take score, b, h, q_idx and kv_idx" if is_score_mod else "must take b, h, q_idx and kv_idx"
        told += f", and no more ({error}). "
        told += (
            "If it is a mask_mod, give block_mask=create_block_mask(mask_mod, ...)" if is_score_mod
            else "If it is a score_mod, give it as score_mod"
        )  # fmt: skip
        place, what = "", f"the score_mod {name}" if is_score_mod else f"the mask_mod {name}"
    else:
        return None
    return UntranslatableError(f"{_where(place)}{what} {told}")


def _is_of_call(error):
    """Whether a mod did not run at all."""
    traceback = error.__traceback__
    while traceback.tb_next is not None:
        traceback = traceback.tb_next
    return traceback.tb_frame.f_globals.get("__name__", "").startswith("attnc.")


def _where(place):
    return f"{place}: " if place else ""
