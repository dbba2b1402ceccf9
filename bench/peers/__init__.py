"""Who takes part in speed.py and papers/: a module each, which takes part if its library can be imported.

A module has:
  NAME                        in result lines; report.py knows how to print it
  version()                   text
  serves(case)                whether it has a call for a Workload; some calls still refuse
  is_heads_last(case)         whether its operands are [B, L, H, D]; otherwise they are [B, H, L, D]
  ways(case, q, k, v)         {how: function without arguments that returns out}, in the layout of the operands
"""

import contextlib
import importlib
import importlib.metadata
import importlib.util
import os
import sys
import time

START = time.monotonic()
# A case compiles one or two kernels: a pool of processes that import torch would start for them.
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")

MODULES = ("ours", "flex", "flash2", "flash3", "flash3_vllm", "flash4", "cudnn", "cudnn_flex")
ALL = (*MODULES, "mem_efficient", "itemized", "flashinfer", "flashmla", "unfused")


def found(names=MODULES):
    """Returns the modules that can be imported."""
    modules = []
    with told("import torch"), contextlib.suppress(ImportError):
        importlib.import_module("torch")
    for name in names:
        try:
            with told(f"import {name}"):
                modules.append(importlib.import_module(f"{__name__}.{name}"))
        except Exception as error:  # a library may also be there in part
            print(f"without {name}: {reason(error)}", file=sys.stderr)
    return modules


@contextlib.contextmanager
def told(what):
    """Prints to stderr what begins, and its seconds at the end if they are many: imports and first calls may take minutes."""
    say = lambda text: print(f"[{time.monotonic() - START:6.1f} s] {text}", file=sys.stderr, flush=True)
    begin = time.monotonic()
    say(f"{what} ...")
    try:
        yield
    finally:
        if (seconds := time.monotonic() - begin) > 0.1:
            say(f"{what}: {seconds:.1f} s")


def reason(error):
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0][:200]}"


def version_of(distribution):
    try:
        return f"{distribution} {importlib.metadata.version(distribution)}"
    except importlib.metadata.PackageNotFoundError:
        return f"{distribution} of unknown version"


def load_of_vllm(library):
    """Loads a library of vLLM's kernels, without the rest of vLLM."""
    import torch

    if not (found := importlib.util.find_spec("vllm")):
        raise ModuleNotFoundError("No module named 'vllm'")
    torch.ops.load_library(os.path.join(found.submodule_search_locations[0], library))


def first(out):
    """Returns out of what a function of FlashAttention returns: also lse, or not."""
    return out[0] if isinstance(out, (tuple, list)) else out


def paged(page, *tensors):
    """Returns (i32 page table [B, N], pools of pages [PAGES, page, H, D], ...) of [B, L, H, D], in shuffled order."""
    import torch

    batch, length = tensors[0].shape[:2]
    pages = batch * length // page
    order = torch.randperm(pages, generator=torch.Generator().manual_seed(0)).to(tensors[0].device)
    pools = [torch.empty(pages, page, *x.shape[2:], device=x.device, dtype=x.dtype) for x in tensors]
    for pool, x in zip(pools, tensors):
        pool[order] = x.reshape(pool.shape)
    return order.view(batch, -1).int(), *pools


def quantised(*tensors):
    """Returns [(e4m3 tensor, scale of each head [B, H])] of [B, H, L, D]. All peers that take e4m3 get these."""
    import attnc

    return [attnc.quantise(x.contiguous()) for x in tensors]


def flat(case, *tensors):
    """Returns [rows, H, D] of packed [1, rows, H, D], and the keyword arguments of a varlen function."""
    ends, longest = case.cu_seqlens(tensors[0].device), max(case.documents())
    lengths = {"cu_seqlens_q": ends, "cu_seqlens_k": ends.clone(), "max_seqlen_q": longest, "max_seqlen_k": longest}
    return [x[0] for x in tensors], lengths
