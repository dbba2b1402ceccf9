"""Who takes part in speed.py: a module each, which takes part if its library can be imported.

A module has:
  NAME                        in result lines; report.py knows how to print it
  version()                   text
  serves(case)                whether it has a call for a Workload; some calls still refuse
  is_heads_last(case)         whether its operands are [B, L, H, D]; otherwise they are [B, H, L, D]
  ways(case, q, k, v)         {how: function without arguments that returns out}, in the layout of the operands
"""

import importlib
import importlib.metadata
import sys

MODULES = ("ours", "flex", "flash2", "flash3", "flash4", "cudnn", "cudnn_flex")


def found(names=MODULES):
    """Returns the modules that can be imported."""
    modules = []
    for name in names:
        try:
            modules.append(importlib.import_module(f"{__name__}.{name}"))
        except Exception as error:  # a library may also be there in part
            print(f"without {name}: {reason(error)}", file=sys.stderr)
    return modules


def reason(error):
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0][:200]}"


def version_of(distribution):
    try:
        return f"{distribution} {importlib.metadata.version(distribution)}"
    except importlib.metadata.PackageNotFoundError:
        return f"{distribution} of unknown version"


def first(out):
    """Returns out of what a function of FlashAttention returns: also lse, or not."""
    return out[0] if isinstance(out, (tuple, list)) else out


def flat(case, *tensors):
    """Returns [rows, H, D] of packed [1, rows, H, D], and the keyword arguments of a varlen function."""
    ends, longest = case.cu_seqlens(tensors[0].device), max(case.documents())
    lengths = {"cu_seqlens_q": ends, "cu_seqlens_k": ends.clone(), "max_seqlen_q": longest, "max_seqlen_k": longest}
    return [x[0] for x in tensors], lengths
