"""Says once per process that the reference on the CPU computes where a GPU may be expected."""

import os
import sys
import warnings

from ._calls import stack_level
from .errors import CpuWarning

# Multiply-adds that take the reference about a second: 8 heads of 1024 queries, 1024 keys and 64 columns.
_MANY = 1 << 30
_is_told = False


def _has_gpu():
    torch = sys.modules.get("torch")
    return torch.cuda.is_available() if torch is not None else os.path.exists("/dev/nvidia0")


def tell_of_cpu(q, v, *others):
    """Warns once per process, if a problem is large or there is a GPU. `others`: folders that did not choose the device."""
    global _is_told
    if _is_told:
        return
    batch, heads, q_len, width = q.shape
    products = batch * heads * q_len * v.shape[2] * (width + v.shape[3])
    is_large = products >= _MANY
    if not is_large and not _has_gpu():
        return
    _is_told = True
    why = "q is on the CPU" + (", and a GPU is here" if not is_large else "")
    warnings.warn(
        f"{why}: attnc's fp64 reference computes, slowly; its kernels run on CUDA devices. Silence this with "
        "warnings.filterwarnings('ignore', category=attnc.CpuWarning)",
        CpuWarning,
        stack_level(*others),
    )
